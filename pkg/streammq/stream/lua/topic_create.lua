-- Makes a topic's meta, or lets its partitions grow; they never shrink, and a topic keeps its layout.
--
-- KEYS[1]  meta, HASH
-- ARGV[1]  number of partitions
-- ARGV[2]  layout
-- ARGV[3]  time of creation, ms
-- ARGV[4]  1: messages have a status; empty: as the topic has it
--
-- Output: {partitions that the topic has now, its layout, 1 if its messages have a status, 1 if it is being deleted};
--         where the layout differs, it is being deleted, or its partitions are no number above zero, nothing was done
local meta, partitions, layout, created, status = KEYS[1], tonumber(ARGV[1]), ARGV[2], ARGV[3], ARGV[4]
local known = redis.call('HMGET', meta, 'partitionCount', 'layout', 'status', 'deleting')
if not known[1] then
  redis.call('HSET', meta, 'partitionCount', partitions, 'layout', layout, 'createdAt', created)
  if status == '1' then redis.call('HSET', meta, 'status', status) end
  return {partitions, layout, status, 0}
end
-- Others that write this meta know one Redis only, and no layout.
local has, other = tonumber(known[1]), known[2] or 'single'
-- How many partitions have entries is not known where the number cannot be read: another one would hide some.
local broken = not has or has < 1 or has % 1 ~= 0
if other ~= layout or known[4] or broken then return {known[1], other, '', known[4] and 1 or 0} end
if status == '1' then
  redis.call('HSET', meta, 'status', status)
else
  status = known[3] or ''
end
if partitions > has then
  redis.call('HSET', meta, 'partitionCount', partitions)
  has = partitions
end
return {has, layout, status, 0}
