-- Resets the idle time of entries that the caller still holds, without counting a delivery. A plain XCLAIM by a
-- member that lost them would steal them back.
--
-- KEYS[1]  stream
-- KEYS[2]  epoch
-- ARGV[1]  epoch of the lease under which they were read; empty: none
-- ARGV[2]  group
-- ARGV[3]  consumer
-- ARGV[4…] id, deliveries, …
--
-- Output: number of entries still held
local stream, epoch_key = KEYS[1], KEYS[2]
local epoch, group, consumer = ARGV[1], ARGV[2], ARGV[3]
if not owns(epoch_key, epoch) then return 0 end
local held = 0
for i = 4, #ARGV, 2 do
  if holds(stream, group, consumer, ARGV[i], ARGV[i + 1]) then
    redis.call('XCLAIM', stream, group, consumer, 0, ARGV[i], 'JUSTID')
    held = held + 1
  end
end
return held
