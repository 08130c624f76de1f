-- Counts the entries that a group has not read, where the server itself cannot tell.
--
-- KEYS[1]  stream
-- ARGV[1]  last id that the group was given
-- ARGV[2]  most entries to count
--
-- Output: number of entries, at most ARGV[2]
return #redis.call('XRANGE', KEYS[1], '(' .. ARGV[1], '+', 'COUNT', ARGV[2])
