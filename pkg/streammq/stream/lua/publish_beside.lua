-- Adds an entry whose payload lies beside the stream, and notes it for retention, in one step: a crash leaves no payload
-- without an entry.
--
-- KEYS[1]  stream
-- KEYS[2]  the payload's key
-- KEYS[3]  payloads beside this stream, ZSET
-- ARGV[1]  uuid of the message
-- ARGV[2]  payload
-- ARGV[3…] field, value, … of the entry
--
-- Output: the entry's id; nil when there is no such stream, where nothing was done
local stream, body, bodies, uuid, payload = KEYS[1], KEYS[2], KEYS[3], ARGV[1], ARGV[2]
if redis.call('EXISTS', stream) == 0 then return false end
redis.call('SET', body, payload)
local id = redis.pcall('XADD', stream, '*', unpack(ARGV, 3))
if id.err then
  redis.call('DEL', body)
  return id
end
redis.call('ZADD', bodies, string.match(id, '^%d+'), uuid)
return id
