-- Lists retry items that are due, by the server's clock. Where the Java original may share the set, its items are left to
-- its own mover for a while, ours are there under the whole key of their hash, since its mover removes all others for good,
-- and what earlier versions of this queue put there or aside is taken over.
--
-- KEYS[1]  retry, ZSET
-- KEYS[2]  items that were put aside, ZSET
-- ARGV[1]  most items
-- ARGV[2]  what the keys of this topic's items begin with; empty: all items are ours
-- ARGV[3]  ms for which an item of another's is left alone once it is due
--
-- Output: {{item …}, ms until the next one is due or -1}
local retry, aside, most, prefix, grace = KEYS[1], KEYS[2], tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3])
local t = redis.call('TIME')
local time = t[1] * 1000 + math.floor(t[2] / 1000)
local page, pages = 100, 10

-- ours tells an item of ours, by group, partition and entry; a short one has no key before that.
local function ours(name)
  if prefix == '' then return true, false end
  local long = string.sub(name, 1, #prefix) == prefix
  if long then name = string.sub(name, #prefix + 1) end
  return string.find(name, '^[^:]+:%d+:%d+%-%d+$') ~= nil, not long
end

if prefix ~= '' then
  for _, name in ipairs(redis.call('ZRANGE', aside, 0, page - 1)) do
    local mine, short = ours(name)
    if mine and not short then -- by an earlier version, which did not know such names
      redis.call('ZADD', retry, time, name)
      redis.call('ZREM', aside, name)
    end
  end
  local waiting = redis.call('ZRANGEBYSCORE', retry, '-inf', '+inf', 'WITHSCORES', 'LIMIT', 0, page)
  for i = 1, #waiting, 2 do
    local mine, short = ours(waiting[i])
    if mine and short then
      redis.call('ZADD', retry, waiting[i + 1], prefix .. waiting[i])
      redis.call('ZREM', retry, waiting[i])
    end
  end
end

local items, from = {}, 0
while #items < most and from < page * pages do
  local due = redis.call('ZRANGEBYSCORE', retry, '-inf', time, 'WITHSCORES', 'LIMIT', from, page)
  for i = 1, #due, 2 do
    if #items < most and (ours(due[i]) or tonumber(due[i + 1]) <= time - grace) then items[#items + 1] = due[i] end
  end
  if #due < 2 * page then break end
  from = from + page
end
local following = redis.call('ZRANGEBYSCORE', retry, '(' .. time, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
return {items, following[2] and math.max(0, tonumber(following[2]) - time) or -1}
