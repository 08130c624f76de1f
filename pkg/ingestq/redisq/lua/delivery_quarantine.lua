-- Moves a pending delivery to the dead letter stream, in one step.
-- The dead letter is added first, so that a refused write acknowledges nothing.
--
-- KEYS[1]  stream
-- KEYS[2]  dead letter stream
-- ARGV[1]  group
-- ARGV[2]  id of the delivery
-- ARGV[3…] field, value, … of the dead letter
--
-- Output: the dead letter's id; '' when the delivery was not pending (nothing was done)
local stream, dlq, group, id = KEYS[1], KEYS[2], ARGV[1], ARGV[2]
if #redis.call('XPENDING', stream, group, id, id, 1) == 0 then
  return ''
end
local letter = redis.call('XADD', dlq, '*', unpack(ARGV, 3))
redis.call('XACK', stream, group, id)
return letter
