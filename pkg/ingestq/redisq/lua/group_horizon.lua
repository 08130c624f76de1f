-- Tells up to where a group has read its stream, with the server's clock, at one instant (design D5).
-- A group whose last delivered id lies beyond the last id of the stream would get nothing until the clock has passed it:
-- it is moved back to the stream's end, and what it skipped comes back from the table.
--
-- KEYS[1]  stream
-- ARGV[1]  group
--
-- Output: {seconds, microseconds, id of the first entry after the last delivered or '', 1 if the group was moved};
--         error NOGROUP when the stream or the group is missing
local stream, group = KEYS[1], ARGV[1]
local now = redis.call('TIME')

local function half(id, n)
  local ms, seq = string.match(id, '^(%d+)-(%d+)$')
  return n == 1 and (ms or id) or (seq or '0')
end
local function longer(a, b)
  if #a ~= #b then return #a > #b end
  return a > b
end
local function beyond(a, b)
  if half(a, 1) ~= half(b, 1) then return longer(half(a, 1), half(b, 1)) end
  return longer(half(a, 2), half(b, 2))
end

local groups = redis.pcall('XINFO', 'GROUPS', stream)
if groups.err then
  if string.find(groups.err, 'no such key', 1, true) then
    return redis.error_reply('NOGROUP no stream ' .. stream)
  end
  return groups
end
local last
for _, g in ipairs(groups) do
  local info = {}
  for i = 1, #g, 2 do info[g[i]] = g[i + 1] end
  if info['name'] == group then last = info['last-delivered-id'] end
end
if not last then
  return redis.error_reply('NOGROUP no group ' .. group .. ' on stream ' .. stream)
end

local moved = 0
local stat = redis.call('XINFO', 'STREAM', stream)
for i = 1, #stat, 2 do
  if stat[i] == 'last-generated-id' and beyond(last, stat[i + 1]) then
    -- The embedded server has no SETID.
    local set = redis.pcall('XGROUP', 'SETID', stream, group, stat[i + 1])
    if set.ok then
      last, moved = stat[i + 1], 1
    end
  end
end

local first = redis.call('XRANGE', stream, '(' .. last, '+', 'COUNT', 1)
return {now[1], now[2], first[1] and first[1][1] or '', moved}
