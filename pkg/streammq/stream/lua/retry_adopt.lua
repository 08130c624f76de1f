-- Gives retry items that an earlier version of this queue has put off the names that they have now: the whole keys of their
-- hashes. Their due times stay.
--
-- KEYS[1]  retry, ZSET
-- ARGV[1]  what the keys of this topic's items begin with
-- ARGV[2…] short names
--
-- Output: number of items renamed
local retry, prefix, n = KEYS[1], ARGV[1], 0
for i = 2, #ARGV do
  local due = redis.call('ZSCORE', retry, ARGV[i])
  if due then
    redis.call('ZADD', retry, due, prefix .. ARGV[i])
    n = n + redis.call('ZREM', retry, ARGV[i])
  end
end
return n
