-- Lists retry items that are due, by the server's clock.
--
-- KEYS[1]  retry, ZSET
-- ARGV[1]  most items
--
-- Output: {{item …}, ms until the next one is due or -1}
local retry, most = KEYS[1], ARGV[1]
local t = redis.call('TIME')
local time = t[1] * 1000 + math.floor(t[2] / 1000)
local items = redis.call('ZRANGEBYSCORE', retry, '-inf', time, 'LIMIT', 0, most)
local following = redis.call('ZRANGEBYSCORE', retry, '(' .. time, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
return {items, following[2] and math.max(0, tonumber(following[2]) - time) or -1}
