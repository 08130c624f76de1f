-- Removes entries that every group has finished and that are too many or too old, oldest first, a portion a call.
-- The border is the oldest entry that any group still needs: its first pending one or the one after its last delivered
-- (a trim by length alone removes unacknowledged entries). Without a group, length and age alone decide.
--
-- KEYS[1]  stream
-- ARGV[1]  most entries to keep; empty: any number
-- ARGV[2]  oldest age to keep, ms; empty: any
-- ARGV[3]  most entries to remove in this call
-- ARGV[4]  1: whatever number and age, all that every group has finished, however many; empty: not
-- ARGV[5]  only count, from this id on; empty: remove
-- ARGV[6]  entries that were counted before
--
-- Output: {entries removed, id below which all groups are done, '' when there is no group, where to count on}
local stream, keep, age, most = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local finished, counting, before = ARGV[4] == '1', ARGV[5], tonumber(ARGV[6]) or 0

if redis.call('EXISTS', stream) == 0 then return {0, '', ''} end
local border = ''
for _, group in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
  local last, name = given(group)
  local first = after(last)
  local pending = redis.call('XPENDING', stream, name, '-', '+', 1)
  if pending[1] and less(pending[1][1], first) then first = pending[1][1] end
  if border == '' or less(first, border) then border = first end
end
if finished and border ~= '' and counting == '' then return {redis.call('XTRIM', stream, 'MINID', '=', border), border, ''} end

local excess = keep and math.max(0, redis.call('XLEN', stream) - keep - before) or 0
local t = redis.call('TIME')
local oldest = age and string.format('%.0f-0', t[1] * 1000 + math.floor(t[2] / 1000) - age) or ''
local from
local n, ended = 0, false
-- A few at a time: their payloads pass through here, and large ones lie in their entries where the Java original may read.
local look, page = counting == '' and '-' or counting, 20
while not ended and n < most do
  local entries = redis.call('XRANGE', stream, look, '+', 'COUNT', math.min(page, most - n))
  for _, e in ipairs(entries) do
    local id = e[1]
    local surplus = finished and border ~= '' or n + 1 <= excess or oldest ~= '' and less(id, oldest)
    if not surplus or border ~= '' and not less(id, border) then
      ended = true
      break
    end
    from, n = after(id), n + 1
  end
  ended = ended or #entries < page or after(entries[#entries][1]) == entries[#entries][1]
  look = from or look
end
if not from then return {0, border, ''} end
if counting ~= '' then return {n, border, from} end
return {redis.call('XTRIM', stream, 'MINID', '=', from), border, ''}
