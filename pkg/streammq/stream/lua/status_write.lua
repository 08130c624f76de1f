-- Writes a message's status for one delivery of it. Completed is final; what a later delivery has written stays.
--
-- KEYS[1]  status, STRING of JSON
-- ARGV[1]  state: processing, completed or failed
-- ARGV[2]  group
-- ARGV[3]  id of the entry
-- ARGV[4]  epoch of the lease under which it was read
-- ARGV[5]  deliveries
-- ARGV[6]  time, as it is to be shown
-- ARGV[7]  error as JSON; empty: none
-- ARGV[8]  time to live, s
-- ARGV[9]  format of the entry; empty: our own. FastStream calls the time updated_at, and writes no group: what it completed
--          may be another group's
--
-- Output: 1 written; 0 a later delivery has written; 2 this group has completed the message; 3 another group's status
local key, state, group, id, epoch, deliveries, at, failure, ttl, format =
  KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7], ARGV[8], ARGV[9]

-- order compares decimal numbers as strings, which may be wider than Lua's: below, at or above 0.
local function order(a, b)
  if #a ~= #b then return #a - #b end
  return a < b and -1 or a > b and 1 or 0
end

-- earlier tells that this delivery came before the one that has written.
local function earlier(had)
  local ams, aseq = string.match(id, '^(%d+)-(%d+)$')
  local bms, bseq = string.match(had.entry or '', '^(%d+)-(%d+)$')
  if not bms then return false end
  for _, pair in ipairs({{ams, bms}, {aseq, bseq}, {epoch, had.epoch or ''}, {deliveries, had.deliveries or ''}}) do
    local o = order(pair[1], pair[2])
    if o ~= 0 then return o < 0 end
  end
  return false
end

local text = redis.call('GET', key)
local fine, had = pcall(cjson.decode, text or '{}')
if fine and type(had) == 'table' then
  if had.group and had.group ~= group or had.status == 'completed' and not had.group then return 3 end
  if had.status == 'completed' then return 2 end
  if earlier(had) then return 0 end
end
local status = {
  status = state, updatedAt = at, group = group, entry = id, epoch = epoch, deliveries = deliveries,
}
if format ~= '' then status.updated_at = at end
if failure ~= '' then status.error = cjson.decode(failure) end
redis.call('SET', key, cjson.encode(status), 'EX', ttl)
return 1
