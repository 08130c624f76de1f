-- Stores an entry to be added again when it is due, and acknowledges it, in one step: no crash loses or doubles it.
-- It is stored first, so that a server without memory acknowledges nothing.
--
-- KEYS[1]  stream
-- KEYS[2]  epoch
-- KEYS[3]  retry, ZSET
-- KEYS[4]  the retry item, HASH
-- ARGV[1]  epoch of the lease under which it was read; empty: none
-- ARGV[2]  group
-- ARGV[3]  consumer
-- ARGV[4]  id
-- ARGV[5]  deliveries
-- ARGV[6]  name of the retry item
-- ARGV[7]  delay, ms
-- ARGV[8…] field, value, … of the entry to add
--
-- Output: 1 stored, 0 another has it
local stream, epoch_key, retry, item = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local epoch, group, consumer, id, deliveries, name, delay = unpack(ARGV, 1, 7)
if not owns(epoch_key, epoch) or not holds(stream, group, consumer, id, deliveries) then return 0 end
local due = string.format('%.0f', now() + tonumber(delay))
redis.call('HSET', item, 'dueAt', due, unpack(ARGV, 8))
redis.call('ZADD', retry, due, name)
redis.call('XACK', stream, group, id)
return 1
