-- Makes a requester's stream of replies, or prolongs its life.
--
-- KEYS[1]  replies, STREAM
-- ARGV[1]  time to live, ms
--
-- Output: 1 made, 0 it was there
local replies, ttl = KEYS[1], ARGV[1]
local made = 0
if redis.call('EXISTS', replies) == 0 then
  redis.call('XGROUP', 'CREATE', replies, 'none', '$', 'MKSTREAM')
  redis.call('XGROUP', 'DESTROY', replies, 'none')
  made = 1
end
redis.call('PEXPIRE', replies, ttl)
return made
