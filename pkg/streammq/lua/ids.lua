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

-- given is the last id that a group of XINFO GROUPS was given, and its name.
local function given(group)
  local info = {}
  for i = 1, #group, 2 do info[group[i]] = group[i + 1] end
  local last = info['last-delivered-id']
  if not string.find(last, '-', 1, true) then last = last .. '-0' end -- the emulator's '0' of a group that was given nothing
  return last, info['name']
end

