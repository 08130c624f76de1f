-- Tells what a group was not given yet and what it has not finished.
-- Counting is for servers that cannot tell the lag: those before 7.0, any after entries were deleted, and the emulator.
--
-- KEYS[1]  stream
-- ARGV[1]  group
-- ARGV[2]  last id that the group was given
-- ARGV[3]  most entries to count; 0: the lag is known
--
-- Output: {entries not given, 1 when this is their exact number, first id not given, first id pending, server's time in ms};
-- an id is '' when there is none
local stream, group, last, most = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3])
local function first(from)
  local entries = redis.call('XRANGE', stream, from, '+', 'COUNT', 1)
  return entries[1] and entries[1][1] or ''
end

local next, lag, exact = first('(' .. last), 0, 1
if most > 0 and next ~= '' then
  if next == first('-') then
    lag = redis.call('XLEN', stream)
  else
    lag = #redis.call('XRANGE', stream, '(' .. last, '+', 'COUNT', most)
    exact = lag < most and 1 or 0
  end
end
local pending = redis.pcall('XPENDING', stream, group, '-', '+', 1) -- the group may have been deleted meanwhile
local t = redis.call('TIME')
return {lag, exact, next, pending[1] and pending[1][1] or '', t[1] * 1000 + math.floor(t[2] / 1000)}
