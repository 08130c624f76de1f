-- Put before every script that reads or settles entries: what makes an old owner harmless.

-- owns tells whether the lease that the caller captured is still the last one taken. A missing key is a mismatch:
-- after a flush nobody owns anything. An empty epoch is that of a single stream, which has no lease.
local function owns(epoch_key, epoch)
  return epoch == '' or redis.call('GET', epoch_key) == epoch
end

-- holds tells whether the group's pending list still names this consumer with this delivery count for the entry:
-- otherwise somebody, perhaps the same member in another life, has it now. Without a consumer it may be anybody's.
local function holds(stream, group, consumer, id, count)
  local p = redis.call('XPENDING', stream, group, id, id, 1)[1]
  if consumer == '' then return p end
  return p and p[2] == consumer and p[4] == tonumber(count)
end

-- now is the server's clock in milliseconds.
local function now()
  local t = redis.call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end

-- forget removes what retries in place have noted of entries.
local function forget(due, attempts, ids)
  if redis.call('EXISTS', due, attempts) == 0 then return end
  redis.call('ZREM', due, unpack(ids))
  redis.call('HDEL', attempts, unpack(ids))
end

-- take claims a pending entry for the consumer and counts a delivery. Output: {entry, count, attempts}, or nil when
-- the entry's data was removed from the stream; then its place in the pending list goes too.
local function take(stream, due, attempts, group, consumer, id, count)
  local got = redis.call('XCLAIM', stream, group, consumer, 0, id)[1]
  if not got then
    redis.call('XACK', stream, group, id)
    forget(due, attempts, {id})
    return nil
  end
  redis.call('ZREM', due, id)
  return {got, count + 1, tonumber(redis.call('HGET', attempts, id) or '0')}
end

-- take_due takes retries in place whose time has come, up to most, and returns how many had lost their data, and the ms
-- until the next one is due, or -1. Such an entry is nobody's until it is taken: on a single stream any consumer may.
local function take_due(out, stream, due, attempts, group, consumer, most)
  local time, lost, ids, counts = now(), 0, {}, {}
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', due, '-inf', time, 'LIMIT', 0, most)) do
    local p = redis.call('XPENDING', stream, group, id, id, 1)[1]
    if p then
      ids[#ids + 1] = id
      counts[id] = p[4]
    else
      forget(due, attempts, {id})
    end
  end
  if #ids > 0 then
    local failed, got = redis.call('HMGET', attempts, unpack(ids)), {}
    for _, e in ipairs(redis.call('XCLAIM', stream, group, consumer, 0, unpack(ids))) do
      if e then got[e[1]] = e end
    end
    redis.call('ZREM', due, unpack(ids))
    for i, id in ipairs(ids) do
      if got[id] then
        out[#out + 1] = {got[id], counts[id] + 1, tonumber(failed[i] or '0')}
      else -- as in take
        redis.call('XACK', stream, group, id)
        forget(due, attempts, {id})
        lost = lost + 1
      end
    end
  end
  local following = redis.call('ZRANGEBYSCORE', due, '(' .. time, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
  return lost, following[2] and math.max(0, tonumber(following[2]) - time) or -1
end

-- letter_id is the id of the next letter in a stream beside that of the Java original. Its sequence is one that the server does
-- not come to by itself: so an id tells in which of the two a letter is.
local function letter_id(letters)
  local ms, seq, first = string.format('%.0f', now()), 0, 1000000000
  if redis.call('EXISTS', letters) == 1 then
    local info = redis.call('XINFO', 'STREAM', letters)
    for i = 1, #info, 2 do
      if info[i] == 'last-generated-id' then
        local last, number = string.match(info[i + 1], '^(%d+)-(%d+)$')
        if #last > #ms or #last == #ms and last >= ms then ms, seq = last, tonumber(number) + 1 end
      end
    end
  end
  return ms .. '-' .. string.format('%.0f', math.max(seq, first))
end
