-- Takes the pending entries of a source for its new owner, in the order of their ids, from whoever has them,
-- whether or not that one lives: its writes are refused from now on. Retries in place keep their due time.
--
-- KEYS[1]  stream
-- KEYS[2]  epoch
-- KEYS[3]  due, ZSET
-- KEYS[4]  attempts, HASH
-- ARGV[1]  epoch of the caller's lease
-- ARGV[2]  group
-- ARGV[3]  consumer
-- ARGV[4]  most entries
-- ARGV[5]  the first id to look at, '-' for all
--
-- Output: {0} the lease is lost; {1, {{entry, deliveries, attempts} …}, entries whose data is gone,
--          last id looked at, '' when there are no more}
local stream, epoch_key, due, attempts = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local epoch, group, consumer, most, from = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
if not owns(epoch_key, epoch) then return {0} end

local out, lost, last = {}, 0, ''
local time = now()
for _, p in ipairs(redis.call('XPENDING', stream, group, from, '+', most)) do
  last = p[1]
  local at = redis.call('ZSCORE', due, last)
  if at and tonumber(at) > time then
    -- Not due: it changes hands, but is no delivery.
    redis.call('XCLAIM', stream, group, consumer, 0, last, 'JUSTID')
  else
    local taken = take(stream, due, attempts, group, consumer, last, p[4])
    if taken then out[#out + 1] = taken else lost = lost + 1 end
  end
end
return {1, out, lost, last}
