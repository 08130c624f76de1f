-- Acknowledges a delivery if it is still idle for that long, so that it no longer pins the stream (design D4).
--
-- KEYS[1]  stream
-- ARGV[1]  group
-- ARGV[2]  idle time in milliseconds
-- ARGV[3]  id of the delivery
--
-- Output: 1 acknowledged, 0 not pending or younger
local stream, group, idle, id = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
if #redis.call('XPENDING', stream, group, 'IDLE', idle, id, id, 1) == 0 then
  return 0
end
redis.call('XACK', stream, group, id)
return 1
