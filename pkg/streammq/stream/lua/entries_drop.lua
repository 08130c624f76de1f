-- Deletes entries that every group has finished: each was given them, and none has them pending.
--
-- KEYS[1]  stream
-- ARGV[1]  1: only while the stream has one group; empty: however many
-- ARGV[2…] ids
--
-- Output: number of entries deleted
local stream = KEYS[1]
local groups = redis.call('XINFO', 'GROUPS', stream)
if ARGV[1] == '1' and #groups ~= 1 then return 0 end
local gone = {}
for i = 2, #ARGV do
  local id, finished = ARGV[i], true
  for _, group in ipairs(groups) do
    local last, name = given(group)
    if less(last, id) or redis.call('XPENDING', stream, name, id, id, 1)[1] then
      finished = false
      break
    end
  end
  if finished then gone[#gone + 1] = id end
end
if #gone == 0 then return 0 end
return redis.call('XDEL', stream, unpack(gone))
