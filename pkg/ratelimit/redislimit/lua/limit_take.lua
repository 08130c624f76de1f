-- Takes one event of a key, by the generic cell rate algorithm, judged by the server's clock.
-- KEYS[1] string: the microsecond at which all events of this key are back; expires by itself
-- ARGV[1] step in microseconds: the time after which one event comes back
-- ARGV[2] window in microseconds: step times the events of the limit
-- Output: 0 = allowed; n > 0 = refused, microseconds until one event is allowed
local key = KEYS[1]
local step, window = tonumber(ARGV[1]), tonumber(ARGV[2])

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local due = tonumber(redis.call('GET', key) or '0')
if due < now then
  due = now
end
local following = due + step
local wait = following - now - window
if wait > 0 then
  return wait
end
-- %.0f: a number this large would be written as 1.7e15 by tostring
redis.call('SET', key, string.format('%.0f', following), 'PX', math.ceil((following - now) / 1000) + 1)
return 0
