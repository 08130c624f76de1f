-- Adds a dead letter to a stream in a slot of its own, once: a repeat with the same name adds nothing.
--
-- KEYS[1]  dead letters, STREAM
-- KEYS[2]  names of the letters that were added, ZSET name → time in ms
-- ARGV[1]  name: stream, group and id of the entry
-- ARGV[2]  time in ms after which a name is forgotten
-- ARGV[3…] field, value, … of the letter
--
-- Output: 1 added, 0 it was there
local dlq, names, name, keep = KEYS[1], KEYS[2], ARGV[1], tonumber(ARGV[2])
if redis.call('ZSCORE', names, name) then return 0 end
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
redis.call('XADD', dlq, '*', unpack(ARGV, 3))
redis.call('ZADD', names, string.format('%.0f', now), name)
redis.call('ZREMRANGEBYSCORE', names, '-inf', string.format('%.0f', now - keep))
return 1
