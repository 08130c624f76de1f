-- Removes a consumer's name from a group without losing what it holds: XGROUP DELCONSUMER drops a consumer's
-- pending entries, so they are moved first, with their idle times and delivery counts.
--
-- KEYS[1]  stream
-- KEYS[2]  heartbeat of the consumer: while it is there the name stays; none: the caller knows that it is not alive
-- ARGV[1]  group
-- ARGV[2]  consumer to remove
-- ARGV[3]  consumer that gets its pending entries
-- ARGV[4]  idle time in ms below which it stays
-- ARGV[5]  number of pending entries above which it stays
-- ARGV[6]  1: the consumer leaves by itself, and its heartbeat ends in any case
--
-- Output: {1 removed or 0 kept, entries moved}; a missing stream or group keeps nothing: {0, 0}
local stream, heartbeat, group, consumer, heir = KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[3]
local min_idle, max_pending = tonumber(ARGV[4]), tonumber(ARGV[5])
if ARGV[6] == '1' then
  redis.call('DEL', heartbeat)
elseif heartbeat and redis.call('EXISTS', heartbeat) == 1 then
  return {0, 0}
end
local all = redis.pcall('XINFO', 'CONSUMERS', stream, group)
if all.err then return {0, 0} end
local idle
for _, fields in ipairs(all) do
  local info = {}
  for i = 1, #fields, 2 do info[fields[i]] = fields[i + 1] end
  if info['name'] == consumer then idle = info['idle'] end
end
if not idle or idle < min_idle then return {0, 0} end

local pending = redis.call('XPENDING', stream, group, '-', '+', max_pending + 1, consumer)
if #pending > max_pending then return {0, 0} end
for _, p in ipairs(pending) do
  redis.call('XCLAIM', stream, group, heir, 0, p[1], 'IDLE', p[3], 'RETRYCOUNT', p[4], 'JUSTID')
end
if #redis.call('XPENDING', stream, group, '-', '+', 1, consumer) > 0 then return {0, #pending} end
redis.call('XGROUP', 'DELCONSUMER', stream, group, consumer)
return {1, #pending}
