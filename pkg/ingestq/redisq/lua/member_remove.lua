-- Removes a dead member from its group without losing what it holds: XGROUP DELCONSUMER drops a consumer's
-- pending entries, so they are moved to the caller first, with their idle times and delivery counts.
--
-- KEYS[1]  stream
-- KEYS[2]  the member's heartbeat key
-- ARGV[1]  group
-- ARGV[2]  the member's consumer name
-- ARGV[3]  the caller's consumer name
-- ARGV[4]  idle time in milliseconds below which it stays
-- ARGV[5]  number of pending entries above which it stays
--
-- Output: {1 removed or 0 kept, number of entries moved}
local stream, heartbeat = KEYS[1], KEYS[2]
local group, member, heir, min_idle, max_pending = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
if redis.call('EXISTS', heartbeat) == 1 then return {0, 0} end

local idle
for _, consumer in ipairs(redis.call('XINFO', 'CONSUMERS', stream, group)) do
  local info = {}
  for i = 1, #consumer, 2 do info[consumer[i]] = consumer[i + 1] end
  if info['name'] == member then idle = info['idle'] end
end
if not idle or idle < min_idle then return {0, 0} end

local pending = redis.call('XPENDING', stream, group, '-', '+', max_pending + 1, member)
if #pending > max_pending then return {0, 0} end
for _, p in ipairs(pending) do
  redis.call('XCLAIM', stream, group, heir, 0, p[1], 'IDLE', p[3], 'RETRYCOUNT', p[4], 'JUSTID')
end
if #redis.call('XPENDING', stream, group, '-', '+', 1, member) > 0 then return {0, #pending} end
redis.call('XGROUP', 'DELCONSUMER', stream, group, member)
return {1, #pending}
