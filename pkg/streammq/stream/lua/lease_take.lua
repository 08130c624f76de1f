-- Takes a free lease and begins a new epoch. Epochs are max(stored + 1, the clock in microseconds), so that a flushed
-- counter never repeats one. A member that asks again for its own lease (an answer was lost) gets a new epoch too.
--
-- KEYS[1]  lease
-- KEYS[2]  epoch
-- ARGV[1]  member
-- ARGV[2]  time to live, ms
--
-- Output: the epoch; '' when another member has the lease
local lease, epoch_key, member, ttl = KEYS[1], KEYS[2], ARGV[1], ARGV[2]
if not redis.call('SET', lease, member, 'NX', 'PX', ttl) then
  if redis.call('GET', lease) ~= member then return '' end
  redis.call('PEXPIRE', lease, ttl)
end
local t = redis.call('TIME')
local clock = t[1] * 1000000 + t[2]
local stored = tonumber(redis.call('GET', epoch_key) or '0')
local epoch = string.format('%.0f', math.max(stored + 1, clock))
redis.call('SET', epoch_key, epoch)
return epoch
