-- Adds a retry item to its stream again and removes it, in one step; of several movers one does it.
-- The entry is added first, so that a server without memory removes nothing.
--
-- KEYS[1]  retry, ZSET
-- KEYS[2]  the item, HASH
-- KEYS[3]  stream of the partition that the item names
-- ARGV[1]  name of the item
-- ARGV[2]  the partition that the caller read in it
--
-- Output: 1 moved, 0 somebody else did, -1 the item is not as the caller read it
local retry, item, stream, name, partition = KEYS[1], KEYS[2], KEYS[3], ARGV[1], ARGV[2]
if not redis.call('ZSCORE', retry, name) then return 0 end
local fields, out = redis.call('HGETALL', item), {}
local found
for i = 1, #fields, 2 do
  if fields[i] == 'partitionId' then found = fields[i + 1] end
  if fields[i] ~= 'dueAt' then
    out[#out + 1] = fields[i]
    out[#out + 1] = fields[i + 1]
  end
end
if found ~= partition then return -1 end
redis.call('XADD', stream, '*', unpack(out))
redis.call('ZREM', retry, name)
redis.call('DEL', item)
return 1
