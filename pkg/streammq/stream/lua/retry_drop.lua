-- Removes retry items, malformed ones too, with their hashes.
--
-- KEYS[1]  retry, ZSET
-- KEYS[2]  malformed items, ZSET
-- KEYS[3…] the items, HASH each
-- ARGV     the items' names, in the order of the keys
--
-- Output: number of items removed
local removed = redis.call('ZREM', KEYS[1], unpack(ARGV)) + redis.call('ZREM', KEYS[2], unpack(ARGV))
redis.call('UNLINK', unpack(KEYS, 3))
return removed
