-- Sets a group back, or forward, on one partition: what comes after the position is delivered, as if for the first time,
-- and what comes before it counts as finished. Pending entries, retries in place and their counts go; the owner's writes
-- are refused from now on. The group is made anew, so that this is one step for any number of pending entries.
--
-- KEYS[1]  stream
-- KEYS[2]  lease
-- KEYS[3]  epoch
-- KEYS[4]  due, ZSET
-- KEYS[5]  attempts, HASH
-- ARGV[1]  group
-- ARGV[2]  id after which it goes on, or '$'
-- ARGV[3]  1: although the partition has an owner
--
-- Output: pending entries that went; -1 no such group; -2 the partition has an owner
local stream, lease, epoch, due, attempts = unpack(KEYS)
local group, position, force = unpack(ARGV)
local pending = redis.pcall('XPENDING', stream, group)
if pending.err then return -1 end
if force ~= '1' and redis.call('EXISTS', lease) == 1 then return -2 end
redis.call('XGROUP', 'DESTROY', stream, group)
redis.call('XGROUP', 'CREATE', stream, group, position)
redis.call('DEL', lease, due, attempts)
local stored = redis.call('GET', epoch)
if stored then
  local t = redis.call('TIME')
  redis.call('SET', epoch, string.format('%.0f', math.max(tonumber(stored) + 1, t[1] * 1000000 + t[2])))
end
return pending[1]
