-- Lists the heartbeats of a group, and changes nothing.
--
-- KEYS[1]  members, HASH member → "expiry in ms|cap…"
--
-- Output: {the server's clock in ms, {member, value, …}}
local t = redis.call('TIME')
return {t[1] * 1000 + math.floor(t[2] / 1000), redis.call('HGETALL', KEYS[1])}
