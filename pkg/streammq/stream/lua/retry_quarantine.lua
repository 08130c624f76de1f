-- Puts a malformed retry item aside: its hash stays as it is, its name leaves the items that the mover looks at.
--
-- KEYS[1]  retry, ZSET
-- KEYS[2]  malformed items, ZSET
-- ARGV[1]  name of the item
-- ARGV[2]  its name among the malformed
--
-- Output: 1 put aside, 0 it was not there
local retry, aside, name, short = KEYS[1], KEYS[2], ARGV[1], ARGV[2]
if not redis.call('ZSCORE', retry, name) then return 0 end
local t = redis.call('TIME')
redis.call('ZADD', aside, t[1] * 1000, short)
return redis.call('ZREM', retry, name)
