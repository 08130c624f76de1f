-- Adds an entry in place of a pending one, and acknowledges that, in one step: a dead letter, or a copy in the same stream.
-- It is added first, so that a refused write acknowledges nothing.
--
-- KEYS[1]  stream
-- KEYS[2]  the stream that it goes to
-- KEYS[3]  epoch; none: there is no lease
-- KEYS[4]  due, ZSET; none: nothing is put off in place
-- KEYS[5]  attempts, HASH
-- ARGV[1]  epoch of the lease under which it was read; empty: none
-- ARGV[2]  group
-- ARGV[3]  consumer; empty: whoever has it
-- ARGV[4]  id
-- ARGV[5]  deliveries
-- ARGV[6]  1: a stream beside that of the Java original, with ids of our own; empty: the server gives the id
-- ARGV[7…] field, value, … of the entry to add
--
-- Output: 1 moved, 0 another has it, or nobody
local stream, target, epoch_key, due, attempts = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local epoch, group, consumer, id, deliveries, own = unpack(ARGV, 1, 6)
if not owns(epoch_key, epoch) or not holds(stream, group, consumer, id, deliveries) then return 0 end
redis.call('XADD', target, own == '1' and letter_id(target) or '*', unpack(ARGV, 7))
if due then forget(due, attempts, {id}) end
redis.call('XACK', stream, group, id)
return 1
