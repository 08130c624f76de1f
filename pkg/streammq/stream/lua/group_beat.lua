-- Notes that a member lives, and lists the group.
--
-- KEYS[1]  members, HASH member → "expiry in ms|cap" or "expiry in ms|cap|pinned partitions by commas"
-- ARGV[1]  member
-- ARGV[2]  time to live, ms; 0 leaves the group
-- ARGV[3]  most partitions that it takes; 0: any number
-- ARGV[4]  time in ms after which a dead member is forgotten
-- ARGV[5]  1: join the group; empty: only if it is in it, so that nobody makes the key of a deleted topic again
-- ARGV[6]  partitions that are the member's own while it lives, by commas; empty: none
--
-- Output: {live members, their caps, the ms until their heartbeats end, and their pinned partitions in turn}, {dead members that are not yet forgotten}
local members, member, ttl, cap, keep = KEYS[1], ARGV[1], tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4])
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
if ttl > 0 and (ARGV[5] == '1' or redis.call('HEXISTS', members, member) == 1) then
  redis.call('HSET', members, member, string.format('%.0f|%s', now + ttl, cap) .. (ARGV[6] ~= '' and '|' .. ARGV[6] or ''))
elseif ttl <= 0 then
  redis.call('HDEL', members, member)
end
local live, dead = {}, {}
local all = redis.call('HGETALL', members)
for i = 1, #all, 2 do
  local expiry, most, pins = string.match(all[i + 1], '^(%d+)|(%d+)|?([%d,]*)$')
  if not expiry or tonumber(expiry) + keep <= now then
    redis.call('HDEL', members, all[i])
  elseif tonumber(expiry) > now then
    live[#live + 1] = all[i]
    live[#live + 1] = most
    live[#live + 1] = string.format('%.0f', tonumber(expiry) - now)
    live[#live + 1] = pins
  else
    dead[#dead + 1] = all[i]
  end
end
return {live, dead}
