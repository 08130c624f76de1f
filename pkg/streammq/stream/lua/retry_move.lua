-- Adds a retry item to its stream again and removes it, in one step; of several movers one does it.
-- The entry is added first, so that a server without memory removes nothing.
--
-- KEYS[1]  retry, ZSET
-- KEYS[2]  the item, HASH
-- KEYS[3]  stream of the partition that the item goes to
-- ARGV[1]  name of the item
-- ARGV[2]  the partition that the caller read in it; empty: none
-- ARGV[3]  the partition that it goes to
-- ARGV[4]  time of the entry, if the item has none
--
-- Output: 1 moved, 0 somebody else did, -1 the item is not as the caller read it
local retry, item, stream, name = KEYS[1], KEYS[2], KEYS[3], ARGV[1]
local partition, to, time = ARGV[2], ARGV[3], ARGV[4]
if not redis.call('ZSCORE', retry, name) then return 0 end
local fields, out, has = redis.call('HGETALL', item), {}, {}
-- Nothing is said of a key that is none: an empty one is a key to the Java original.
local left_out = {dueAt = true, partitionId = true}
for i = 1, #fields, 2 do
  local field, value = fields[i], fields[i + 1]
  has[field] = value
  if not left_out[field] and not (value == '' and (field == 'key' or field == 'originalMessageId')) then
    out[#out + 1] = field
    out[#out + 1] = value
  end
end
if #fields == 0 or (has['partitionId'] or '') ~= partition then return -1 end
local function add(field, value)
  out[#out + 1] = field
  out[#out + 1] = value
end
add('partitionId', to)
if not has['timestamp'] then add('timestamp', time) end
if not has['payload'] and not has['payloadRef'] then add('payload', '') end
redis.call('XADD', stream, '*', unpack(out))
redis.call('ZREM', retry, name)
redis.call('DEL', item)
return 1
