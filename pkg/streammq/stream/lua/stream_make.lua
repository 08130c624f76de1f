-- Lets a stream be there, so that producers, who add to it only if it is, need not make it.
--
-- KEYS[1]  stream
-- KEYS[2]  meta of its topic, HASH; none: it has no topic, or that may lie in another slot
-- ARGV[1]  time to live, ms, from now on; none: for ever
--
-- Output: 1 made, 0 it was there, -1 the topic is not, or is being deleted
local stream, meta, ttl = KEYS[1], KEYS[2], ARGV[1]
if meta then
  local known = redis.call('HMGET', meta, 'partitionCount', 'deleting')
  if not known[1] or known[2] then return -1 end
end
local made = 0
if redis.call('EXISTS', stream) == 0 then
  redis.call('XGROUP', 'CREATE', stream, 'none', '$', 'MKSTREAM')
  redis.call('XGROUP', 'DESTROY', stream, 'none')
  made = 1
end
if ttl then redis.call('PEXPIRE', stream, ttl) end
return made
