-- Marks a topic as being deleted, with the groups that it has: who reads its meta takes it for unknown from now on.
--
-- KEYS[1]  meta, HASH
-- ARGV     names of groups; those of an earlier call are kept
--
-- Output: all groups, with spaces between; nil when there is no such topic
local meta = KEYS[1]
local known = redis.call('HMGET', meta, 'partitionCount', 'deleting')
if not known[1] then return false end
local seen, all = {}, {}
local function add(name)
  if not seen[name] then
    seen[name] = true
    all[#all + 1] = name
  end
end
for name in string.gmatch(known[2] or '', '%S+') do add(name) end
for _, name in ipairs(ARGV) do add(name) end
local text = table.concat(all, ' ')
redis.call('HSET', meta, 'deleting', text)
return text
