-- Lets a partition's stream be there, so that producers, who add to it only if it is, need not make it.
--
-- KEYS[1]  stream
-- KEYS[2]  meta of its topic, HASH; only where it may lie in another slot there is none
--
-- Output: 1 made, 0 it was there, -1 the topic is not, or is being deleted
local stream, meta = KEYS[1], KEYS[2]
if meta then
  local known = redis.call('HMGET', meta, 'partitionCount', 'deleting')
  if not known[1] or known[2] then return -1 end
end
if redis.call('EXISTS', stream) == 1 then return 0 end
redis.call('XGROUP', 'CREATE', stream, 'none', '$', 'MKSTREAM')
redis.call('XGROUP', 'DESTROY', stream, 'none')
return 1
