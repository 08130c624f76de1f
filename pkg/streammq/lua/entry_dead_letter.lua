-- Moves an entry to the dead letters, in one step.
-- The letter is added first, so that a refused write acknowledges nothing.
--
-- KEYS[1]  stream
-- KEYS[2]  epoch
-- KEYS[3]  due, ZSET
-- KEYS[4]  attempts, HASH
-- KEYS[5]  dead letters, STREAM
-- ARGV[1]  epoch of the lease under which it was read; empty: none
-- ARGV[2]  group
-- ARGV[3]  consumer
-- ARGV[4]  id
-- ARGV[5]  deliveries
-- ARGV[6]  1: a stream beside that of the Java original, with ids of our own; empty: the server gives the id
-- ARGV[7…] field, value, … of the letter
--
-- Output: 1 moved, 0 another has it
local stream, epoch_key, due, attempts, dlq = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local epoch, group, consumer, id, deliveries, own = unpack(ARGV, 1, 6)
if not owns(epoch_key, epoch) or not holds(stream, group, consumer, id, deliveries) then return 0 end
redis.call('XADD', dlq, own == '1' and letter_id(dlq) or '*', unpack(ARGV, 7))
forget(due, attempts, {id})
redis.call('XACK', stream, group, id)
return 1
