-- Acquire a lock that is free and has no waiters, or that was granted to the queue entry that is given up; else join the
-- queue, with the old ticket if there is one.
-- KEYS  the lock key, its queue, its waiters' state
-- ARGV  identifier, serial number of the request, lease in milliseconds, channel, grant in milliseconds, ticket or 0,
--       the queue entry that is given up for this one, or ''
-- reply "identifier:serial" when acquired; else {"identifier:serial", holder's identifier or '', PTTL of the lock, ticket}
local key, queue, waiters = KEYS[1], KEYS[2], KEYS[3]
local mark, entry = ARGV[1] .. ':' .. ARGV[2], ARGV[4] .. '|' .. ARGV[1] .. '|' .. ARGV[5]
local former = string.match(ARGV[7], '|([^|]+)|')
local holder, left = redis.call('GET', key), redis.call('PTTL', key)
if former then
  redis.call('ZREM', queue, ARGV[7])
end
local is_ours = holder and (holder == ARGV[1] or holder == former)
if is_ours or not holder and redis.call('EXISTS', queue) == 0 then
  -- A late copy of the request must not shorten a lease that was extended since, nor give an endless lock an end.
  if holder ~= ARGV[1] or left ~= -1 and left < tonumber(ARGV[3]) then
    redis.call('SET', key, ARGV[1], 'PX', ARGV[3])
  else
    refuse_replica(key)
  end
  redis.pcall('ZREM', queue, entry)
  redis.pcall('HDEL', waiters, 'granted')
  return mark
end
redis.call('HDEL', waiters, 'suspect:' .. ARGV[4])
local ticket = tonumber(ARGV[6])
if ticket == 0 then
  local last = redis.call('ZRANGE', queue, -1, -1, 'WITHSCORES')
  ticket = (last[2] or 0) + 1
end
if redis.call('ZADD', queue, 'NX', ticket, entry) == 0 then
  ticket = tonumber(redis.call('ZSCORE', queue, entry)) -- it is in the queue already
end
redis.pcall('PEXPIRE', queue, COMPANION_TTL)
if not holder then
  grant_next(key, queue, waiters, nil, ARGV[4])
  holder, left = redis.call('GET', key), redis.call('PTTL', key)
end
return {mark, holder or '', left, ticket}
