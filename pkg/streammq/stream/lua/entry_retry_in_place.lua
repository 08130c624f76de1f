-- Puts an entry off: it stays pending, and is delivered again when it is due.
--
-- KEYS[1]  stream
-- KEYS[2]  epoch
-- KEYS[3]  due, ZSET
-- KEYS[4]  attempts, HASH
-- ARGV[1]  epoch of the lease under which it was read; empty: none
-- ARGV[2]  group
-- ARGV[3]  consumer
-- ARGV[4]  id
-- ARGV[5]  deliveries
-- ARGV[6]  failed attempts, this one counted
-- ARGV[7]  delay, ms
--
-- Output: 1 put off, 0 another has it
local stream, epoch_key, due, attempts = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local epoch, group, consumer, id, deliveries, failed, delay = unpack(ARGV)
if not owns(epoch_key, epoch) or not holds(stream, group, consumer, id, deliveries) then return 0 end
redis.call('HSET', attempts, id, failed)
redis.call('ZADD', due, now() + tonumber(delay), id)
return 1
