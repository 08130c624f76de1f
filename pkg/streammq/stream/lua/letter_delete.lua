-- Deletes dead letters and their marks.
--
-- KEYS[1]  dead letters, STREAM
-- KEYS[2]  replayed letters, HASH
-- ARGV     ids
--
-- Output: number of letters deleted
redis.call('HDEL', KEYS[2], unpack(ARGV))
return redis.call('XDEL', KEYS[1], unpack(ARGV))
