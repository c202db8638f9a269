-- Learn whether a lock was handed over, and note that its holder knows it. Sent twice, or arriving late, it changes nothing
-- for a lock that is held by another identifier, and never shortens a lease.
-- KEYS  the lock key, its queue, its facts
-- ARGV  identifier, serial number of the request, lease in milliseconds (0 to leave it as it is), place in the queue
-- reply "identifier:serial" when held; else {"identifier:serial", holder's identifier or '', PTTL of the lock,
--       1 if the place is in the queue, else 0}
local key, queue, facts = KEYS[1], KEYS[2], KEYS[3]
local mark = ARGV[1] .. ':' .. ARGV[2]
local holder = redis.call('GET', key)
if holder ~= ARGV[1] then
  return {mark, holder or '', redis.call('PTTL', key), redis.call('ZSCORE', queue, ARGV[4]) and 1 or 0}
end
local left = redis.call('PTTL', key)
if left ~= -1 and left < tonumber(ARGV[3]) then
  redis.call('PEXPIRE', key, ARGV[3])
end
redis.pcall('ZREM', queue, ARGV[4])
if redis.pcall('HGET', facts, 'granted') == ARGV[4] then
  redis.pcall('HDEL', facts, 'granted')
end
return mark
