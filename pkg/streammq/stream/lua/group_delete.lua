-- Deletes a group on one partition, with all that is kept for it there.
--
-- KEYS[1]  stream
-- KEYS[2]  lease
-- KEYS[3]  epoch
-- KEYS[4]  due, ZSET
-- KEYS[5]  attempts, HASH
-- ARGV[1]  group
-- ARGV[2]  1: although the partition has an owner; its writes are refused from now on
--
-- Output: 1 deleted, 0 there was no such group, -2 the partition has an owner
local stream, lease, epoch, due, attempts = unpack(KEYS)
local group, force = unpack(ARGV)
if force ~= '1' and redis.call('EXISTS', lease) == 1 then return -2 end
redis.call('DEL', lease, epoch, due, attempts)
local destroyed = redis.pcall('XGROUP', 'DESTROY', stream, group)
return type(destroyed) == 'number' and destroyed or 0
