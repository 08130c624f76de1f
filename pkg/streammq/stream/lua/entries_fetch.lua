-- Reads what a source's reader runs next: retries in place that are due, then, if it claims, entries that others have
-- not touched for long, then new entries.
-- The epoch is compared here too: a member that reads under a lost lease would take entries from the new owner,
-- and break their order.
--
-- KEYS[1]  stream
-- KEYS[2]  epoch (unused when ARGV[1] is empty)
-- KEYS[3]  due, ZSET
-- KEYS[4]  attempts, HASH
-- ARGV[1]  epoch of the caller's lease; empty: the source has none
-- ARGV[2]  group
-- ARGV[3]  consumer
-- ARGV[4]  most entries
-- ARGV[5]  idle time in ms from which entries of others are claimed; empty: none are. Only for a server that knows
--          XREADGROUP … CLAIM, of Redis 8.4
--
-- Output: {0} the lease is lost; {1, {{entry, deliveries, attempts} …}, entries whose data is gone,
--          last id of the stream if nothing new was read, else '', ms until the next retry is due or -1,
--          new entries as one MessagePack text of {{id, {field, value …}} …}, '' if there are none}
-- A reply of many nested tables costs the server, and the reader, more than the reading itself: new entries, each the first
-- delivery, are packed. A server without cmsgpack puts them into the first list.
local stream, epoch_key, due, attempts = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local epoch, group, consumer, most, idle = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5]
if not owns(epoch_key, epoch) then return {0} end

-- sorted parts what a claiming read brought: what was pending goes to out, new entries are returned, or nil, and how many
-- had lost their data. A claimed entry has two more parts, its idle time and how often it was delivered before.
local function sorted(out, got, stream, due, attempts, group, consumer)
  local new, lost = nil, 0
  for _, e in ipairs(got) do
    local before = tonumber(e[4] or 0)
    local p = before > 0 and redis.call('XPENDING', stream, group, e[1], e[1], 1)[1]
    if before == 0 then
      new = new or {}
      new[#new + 1] = {e[1], e[2]}
    elseif not p or not e[2] then -- as in take
      redis.call('XACK', stream, group, e[1])
      forget(due, attempts, {e[1]})
      lost = lost + 1
    elseif redis.call('ZSCORE', due, e[1]) then -- it waits for its time, and this was no delivery
      redis.call('XCLAIM', stream, group, consumer, 0, e[1], 'RETRYCOUNT', before, 'JUSTID')
    else
      out[#out + 1] = {{e[1], e[2]}, p[4], tonumber(redis.call('HGET', attempts, e[1]) or '0')}
    end
  end
  return new, lost
end

local out = {}
local lost, wait = take_due(out, stream, due, attempts, group, consumer, most)
if #out >= most then return {1, out, lost, '', wait, ''} end
local last, packed, packer, new = '', '', rawget(_G, 'cmsgpack'), nil
if idle == '' then
  local got = redis.call('XREADGROUP', 'GROUP', group, consumer, 'COUNT', most - #out, 'STREAMS', stream, '>')
  new = got and got[1][2]
else
  local got = redis.call('XREADGROUP', 'GROUP', group, consumer, 'COUNT', most - #out, 'CLAIM', idle, 'STREAMS', stream, '>')
  local gone
  new, gone = sorted(out, got and got[1][2] or {}, stream, due, attempts, group, consumer)
  lost = lost + gone
end
if new and packer then
  packed = packer.pack(new)
elseif new then
  for _, e in ipairs(new) do out[#out + 1] = {e, 1, 0} end
elseif #out == 0 then
  local info = redis.call('XINFO', 'STREAM', stream)
  for i = 1, #info, 2 do
    if info[i] == 'last-generated-id' then last = info[i + 1] end
  end
end
return {1, out, lost, last, wait, packed}
