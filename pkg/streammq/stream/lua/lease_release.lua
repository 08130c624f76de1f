-- Frees a lease that the member still has, under the same epoch; the epoch stays, but for a topic that was deleted.
--
-- KEYS[1]  lease
-- KEYS[2]  epoch
-- ARGV[1]  member
-- ARGV[2]  epoch of its taking
-- ARGV[3]  1: the topic was deleted; empty: it is there
--
-- Output: 1 freed, 0 lost before
local lease, epoch_key, member, epoch = KEYS[1], KEYS[2], ARGV[1], ARGV[2]
if redis.call('GET', lease) ~= member or redis.call('GET', epoch_key) ~= epoch then return 0 end
if ARGV[3] == '1' then redis.call('DEL', epoch_key) end
return redis.call('DEL', lease)
