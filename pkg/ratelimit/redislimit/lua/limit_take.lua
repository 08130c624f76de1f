-- Takes events of a key, of each of its limits some or of none, by the generic cell rate algorithm, judged by the server's clock.
-- KEYS[1] string: of each limit the microsecond at which all its events are back, with blanks between; expires by itself
-- ARGV[1] the longest wait in microseconds with which the events are taken
-- ARGV[2..] of each limit three: its events, its window in microseconds, and how many to take; fewer than 0 give events back
-- Output: microseconds until they may be used; more than the longest wait = none was taken
local key, most = KEYS[1], tonumber(ARGV[1])

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local known = {}
for due in string.gmatch(redis.call('GET', key) or '', '%d+') do
  known[#known + 1] = tonumber(due)
end
local wait, last, dues = 0, now, {}
for i = 2, #ARGV, 3 do
  local events, window, cost = tonumber(ARGV[i]), tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2])
  local due = known[#dues + 1] or 0
  if cost > 0 then
    due = math.max(due, now)
    wait = math.max(wait, due + math.floor(window / events) - now - window)
  end
  due = math.max(due + math.floor(cost * window / events), 0)
  last = math.max(last, due)
  -- %.0f: a number this large would be written as 1.7e15 by tostring
  dues[#dues + 1] = string.format('%.0f', due)
end
if wait <= most then
  redis.call('SET', key, table.concat(dues, ' '), 'PX', math.ceil((last - now) / 1000) + 1)
end
return wait
