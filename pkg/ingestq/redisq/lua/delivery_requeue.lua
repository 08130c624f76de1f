-- Replaces a pending delivery by a copy of it, in one step (design D4).
-- The copy is added first: when Redis refuses writes for want of memory, nothing is acknowledged.
--
-- KEYS[1]  stream
-- ARGV[1]  group
-- ARGV[2]  id of the delivery
-- ARGV[3…] field, value, … of the copy
--
-- Output: the copy's id; '' when the delivery was not pending (nothing was done)
local stream, group, id = KEYS[1], ARGV[1], ARGV[2]
if #redis.call('XPENDING', stream, group, id, id, 1) == 0 then
  return ''
end
local copy = redis.call('XADD', stream, '*', unpack(ARGV, 3))
redis.call('XACK', stream, group, id)
return copy
