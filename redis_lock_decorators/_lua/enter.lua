-- Check whether a lock was granted to a waiter, and note that its holder knows. Sent twice or late, this changes nothing for
-- a lock that holds another identifier, and never shortens a lease.
-- KEYS  the lock key, its queue, its waiters' state
-- ARGV  identifier, serial number of the request, lease in milliseconds (0 to leave it unchanged), queue entry
-- reply "identifier:serial" when held; else {"identifier:serial", holder's identifier or '', PTTL of the lock,
--       1 if the entry is in the queue, else 0}
local key, queue, waiters = KEYS[1], KEYS[2], KEYS[3]
local mark = ARGV[1] .. ':' .. ARGV[2]
local holder = redis.call('GET', key)
if holder ~= ARGV[1] then
  refuse_replica(key)
  return {mark, holder or '', redis.call('PTTL', key), redis.call('ZSCORE', queue, ARGV[4]) and 1 or 0}
end
local left = redis.call('PTTL', key)
if left ~= -1 and left < tonumber(ARGV[3]) then
  redis.call('PEXPIRE', key, ARGV[3])
else
  refuse_replica(key)
end
redis.pcall('ZREM', queue, ARGV[4])
if redis.pcall('HGET', waiters, 'granted') == ARGV[4] then
  redis.pcall('HDEL', waiters, 'granted')
end
return mark
