-- Prolongs a lease that the member still has, under the same epoch.
--
-- KEYS[1]  lease
-- KEYS[2]  epoch
-- ARGV[1]  member
-- ARGV[2]  epoch of its taking
-- ARGV[3]  time to live, ms
--
-- Output: 1 prolonged, 0 lost
local lease, epoch_key, member, epoch, ttl = KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[3]
if redis.call('GET', lease) ~= member or redis.call('GET', epoch_key) ~= epoch then return 0 end
return redis.call('PEXPIRE', lease, ttl)
