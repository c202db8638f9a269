-- Take a lock that is free and awaited by nobody, or was handed over at the place that is given up; else wait for it in
-- its queue, by the old ticket if there is one.
-- KEYS  the lock key, its queue, its facts
-- ARGV  identifier, serial number of the request, lease in milliseconds, channel, grant in milliseconds, ticket or 0,
--       the place in the queue that is given up for this one, or ''
-- reply "identifier:serial" when held; else {"identifier:serial", holder's identifier or '', PTTL of the lock, ticket}
local key, queue, facts = KEYS[1], KEYS[2], KEYS[3]
local mark, place = ARGV[1] .. ':' .. ARGV[2], ARGV[4] .. '|' .. ARGV[1] .. '|' .. ARGV[5]
local former = string.match(ARGV[7], '|([^|]+)|')
local holder, left = redis.call('GET', key), redis.call('PTTL', key)
if former then
  redis.call('ZREM', queue, ARGV[7])
end
local is_ours = holder and (holder == ARGV[1] or holder == former)
if is_ours or not holder and redis.call('EXISTS', queue) == 0 then
  -- A copy of the request that arrives late must not shorten a lease that was extended since, nor end an endless one.
  if holder ~= ARGV[1] or left ~= -1 and left < tonumber(ARGV[3]) then
    redis.call('SET', key, ARGV[1], 'PX', ARGV[3])
  end
  redis.pcall('ZREM', queue, place)
  redis.pcall('HDEL', facts, 'granted')
  return mark
end
redis.call('HDEL', facts, 'suspect:' .. ARGV[4])
local ticket = tonumber(ARGV[6])
if ticket == 0 then
  local last = redis.call('ZRANGE', queue, -1, -1, 'WITHSCORES')
  ticket = (last[2] or 0) + 1
end
if redis.call('ZADD', queue, 'NX', ticket, place) == 0 then
  ticket = tonumber(redis.call('ZSCORE', queue, place)) -- it stands there already
end
redis.pcall('PEXPIRE', queue, KEPT)
if not holder then
  promote(key, queue, facts, nil, ARGV[4])
  holder, left = redis.call('GET', key), redis.call('PTTL', key)
end
return {mark, holder or '', left, ticket}
