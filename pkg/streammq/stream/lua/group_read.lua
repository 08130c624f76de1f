-- Tells up to where a group has read its stream, with the server's clock, at one instant.
-- A group whose last delivered id lies beyond the last id of the stream would get nothing until the clock has passed it:
-- it is moved back to the stream's end.
--
-- KEYS[1]  stream
-- ARGV[1]  group
--
-- Output: {seconds, microseconds, id of the first entry after the last delivered or '', 1 if the group was moved};
--         error NOGROUP when the stream or the group is missing
local stream, group = KEYS[1], ARGV[1]
local now = redis.call('TIME')
if redis.call('EXISTS', stream) == 0 then return redis.error_reply('NOGROUP no stream ' .. stream) end
local last
for _, g in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
  local at, name = given(g)
  if name == group then last = at end
end
if not last then return redis.error_reply('NOGROUP no group ' .. group .. ' on stream ' .. stream) end

local moved = 0
local stat = redis.call('XINFO', 'STREAM', stream)
for i = 1, #stat, 2 do
  if stat[i] == 'last-generated-id' and less(whole(stat[i + 1]), last) then
    -- The embedded server has no SETID.
    if redis.pcall('XGROUP', 'SETID', stream, group, stat[i + 1]).ok then last, moved = stat[i + 1], 1 end
  end
end
local first = redis.call('XRANGE', stream, '(' .. last, '+', 'COUNT', 1)
return {now[1], now[2], first[1] and first[1][1] or '', moved}
