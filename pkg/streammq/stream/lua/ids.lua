-- Put before scripts that compare ids of entries.

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
  if #seq > 15 then return id end
  return ms .. '-' .. string.format('%.0f', tonumber(seq) + 1)
end

-- whole is an id with both its halves: the emulator says '0' or '' of what was never written, or given.
local function whole(id) return string.find(id, '-', 1, true) and id or (tonumber(id) and id or '0') .. '-0' end

-- given is the last id that a group of XINFO GROUPS was given, and its name.
local function given(group)
  local info = {}
  for i = 1, #group, 2 do info[group[i]] = group[i + 1] end
  return whole(info['last-delivered-id']), info['name']
end

