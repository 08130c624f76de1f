-- Acknowledges entries that the caller still holds.
--
-- KEYS[1]  stream
-- KEYS[2]  epoch
-- KEYS[3]  due, ZSET
-- KEYS[4]  attempts, HASH
-- ARGV[1]  epoch of the lease under which they were read; empty: none
-- ARGV[2]  group
-- ARGV[3]  consumer
-- ARGV[4…] id, deliveries, … in the order of the ids
--
-- Output: number of entries acknowledged; -1 when the lease is lost
local stream, epoch_key, due, attempts = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local epoch, group, consumer = ARGV[1], ARGV[2], ARGV[3]
if not owns(epoch_key, epoch) then return -1 end

-- One look at the pending list for the whole batch; what lies outside it is looked at by itself.
local count = {}
if #ARGV > 5 then
  for _, p in ipairs(redis.call('XPENDING', stream, group, ARGV[4], ARGV[#ARGV - 1], (#ARGV - 3) / 2, consumer)) do
    count[p[1]] = p[4]
  end
end
local mine = {}
for i = 4, #ARGV, 2 do
  local id, deliveries = ARGV[i], ARGV[i + 1]
  if count[id] == tonumber(deliveries) or not count[id] and holds(stream, group, consumer, id, deliveries) then
    mine[#mine + 1] = id
  end
end
if #mine == 0 then return 0 end
forget(due, attempts, mine)
return redis.call('XACK', stream, group, unpack(mine))
