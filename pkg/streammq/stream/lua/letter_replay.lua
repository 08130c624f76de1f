-- Adds a dead letter's message to its partition again and marks the letter, in one step: it is replayed once.
--
-- KEYS[1]  dead letters, STREAM
-- KEYS[2]  replayed letters, HASH letter → entry
-- KEYS[3]  stream
-- ARGV[1]  id of the letter
-- ARGV[2…] field, value, … of the entry to add
--
-- Output: {1, the entry's id}; {0, the entry of an earlier replay}; {-1} no such letter; {-2} no such stream
local dlq, replayed, stream, id = KEYS[1], KEYS[2], KEYS[3], ARGV[1]
local before = redis.call('HGET', replayed, id)
if before then return {0, before} end
if #redis.call('XRANGE', dlq, id, id) == 0 then return {-1} end
if redis.call('EXISTS', stream) == 0 then return {-2} end
local entry = redis.call('XADD', stream, '*', unpack(ARGV, 2))
redis.call('HSET', replayed, id, entry)
return {1, entry}
