-- Acknowledges an entry if it is still idle for that long, so that it no longer keeps the stream from being trimmed.
--
-- KEYS[1]  stream
-- ARGV[1]  group
-- ARGV[2]  idle time, ms
-- ARGV[3]  id
--
-- Output: 1 acknowledged, 0 not pending or younger
local stream, group, idle, id = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
if #redis.call('XPENDING', stream, group, 'IDLE', idle, id, id, 1) == 0 then return 0 end
return redis.call('XACK', stream, group, id)
