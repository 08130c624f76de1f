-- Moves dead letters of ours out of the stream that the Java original reads, a portion a call, with their marks.
--
-- KEYS[1]  dead letters of both, STREAM
-- KEYS[2]  replayed letters of it, HASH letter → entry
-- KEYS[3]  dead letters of ours, STREAM
-- KEYS[4]  replayed letters of it, HASH
-- ARGV[1]  id to begin with, '-' for the first
-- ARGV[2]  most letters to look at
--
-- Output: {letters moved, the last id looked at, '' when there are no more}
local dlq, replayed, own, own_replayed, from, most = KEYS[1], KEYS[2], KEYS[3], KEYS[4], ARGV[1], ARGV[2]
local moved, last = 0, ''
for _, letter in ipairs(redis.call('XRANGE', dlq, from, '+', 'COUNT', most)) do
  local id, fields = letter[1], letter[2]
  last = id
  local ours = false
  for i = 1, #fields, 2 do
    if fields[i] == 'group' then ours = true end
  end
  if ours then
    local new = redis.call('XADD', own, letter_id(own), unpack(fields))
    local entry = redis.call('HGET', replayed, id)
    if entry then
      redis.call('HSET', own_replayed, new, entry)
      redis.call('HDEL', replayed, id)
    end
    redis.call('XDEL', dlq, id)
    moved = moved + 1
  end
end
return {moved, last}
