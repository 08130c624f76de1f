-- Takes a member that stops out of its group if it holds nothing; its heartbeat ends in any case.
--
-- KEYS[1]  stream
-- KEYS[2]  the member's heartbeat key
-- ARGV[1]  group
-- ARGV[2]  the member's consumer name
--
-- Output: 1 left, 0 stays with its pending entries, or there is no stream or group
local stream, heartbeat, group, member = KEYS[1], KEYS[2], ARGV[1], ARGV[2]
redis.call('DEL', heartbeat)
local pending = redis.pcall('XPENDING', stream, group, '-', '+', 1, member)
if pending.err or #pending > 0 then return 0 end
redis.call('XGROUP', 'DELCONSUMER', stream, group, member)
return 1
