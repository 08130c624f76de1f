-- Takes pending entries of a single stream: retries in place that are due, then those of consumers that are dead or have
-- not touched them for long. What waits for its time is left alone.
-- There is no lease here: who reads such an entry later is told by the delivery count.
--
-- KEYS[1]  stream
-- KEYS[2]  unused
-- KEYS[3]  due, ZSET
-- KEYS[4]  attempts, HASH
-- ARGV[1]  group
-- ARGV[2]  consumer
-- ARGV[3]  most entries
-- ARGV[4]  idle time in ms from which an entry of a live consumer is taken
-- ARGV[5]  id from which entries of the following are looked at
-- ARGV[6…] consumers that are known to be dead; the caller itself for what it had in another life
--
-- Output: {1, {{entry, deliveries, attempts} …}, entries whose data is gone, last id looked at of theirs or '', ms until the
--          next retry is due or -1}
local stream, due, attempts = KEYS[1], KEYS[3], KEYS[4]
local group, consumer, most, idle = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]

local out = {}
local lost, wait = take_due(out, stream, due, attempts, group, consumer, most)
local mine = {} -- what was taken here is pending under the caller's name by now
for _, taken in ipairs(out) do mine[taken[1][1]] = true end
local function claim(pending)
  for _, p in ipairs(pending) do
    if not mine[p[1]] and not redis.call('ZSCORE', due, p[1]) then
      mine[p[1]] = true
      local taken = take(stream, due, attempts, group, consumer, p[1], p[4])
      if taken then out[#out + 1] = taken else lost = lost + 1 end
    end
  end
end
local last = ''
for i = 6, #ARGV do
  if #out < most then
    local pending = redis.call('XPENDING', stream, group, ARGV[5], '+', most - #out, ARGV[i])
    if #pending > 0 then last = pending[#pending][1] end
    claim(pending)
  end
end
if #out < most then claim(redis.call('XPENDING', stream, group, 'IDLE', idle, '-', '+', most - #out)) end
return {1, out, lost, last, wait}
