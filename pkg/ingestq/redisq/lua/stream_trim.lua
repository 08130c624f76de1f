-- Removes the entries that every group has finished: those below the oldest one that any group still needs,
-- which is its first pending entry or the one after its last delivered. A trim by length removes unacknowledged entries too.
--
-- KEYS[1]  stream
--
-- Output: number of entries removed; 0 without stream or group
local stream = KEYS[1]

-- less compares ids as decimal strings: their halves are 64 bits wide, Lua's numbers are not.
local function less(a, b)
  local ams, aseq = string.match(a, '^(%d+)-(%d+)$')
  local bms, bseq = string.match(b, '^(%d+)-(%d+)$')
  if ams ~= bms then
    if #ams ~= #bms then return #ams < #bms end
    return ams < bms
  end
  if #aseq ~= #bseq then return #aseq < #bseq end
  return aseq < bseq
end

-- after is the id that follows; where a number would lose digits it is the id itself, which keeps one entry more.
local function after(id)
  local ms, seq = string.match(id, '^(%d+)-(%d+)$')
  if not ms then
    ms, seq = id, '0'
  end
  if #seq > 15 then return ms .. '-' .. seq end
  return ms .. '-' .. string.format('%.0f', tonumber(seq) + 1)
end

local groups = redis.pcall('XINFO', 'GROUPS', stream)
if groups.err then
  if string.find(groups.err, 'no such key', 1, true) then return 0 end
  return groups
end
local needed
for _, group in ipairs(groups) do
  local info = {}
  for i = 1, #group, 2 do info[group[i]] = group[i + 1] end
  local first = after(info['last-delivered-id'])
  local pending = redis.call('XPENDING', stream, info['name'], '-', '+', 1)
  if pending[1] and less(pending[1][1], first) then first = pending[1][1] end
  if not needed or less(first, needed) then needed = first end
end
if not needed then return 0 end
return redis.call('XTRIM', stream, 'MINID', '=', needed)
