-- Release another client's lock by the identifier that was found in it: grant it to its first waiter, or delete it. Unlike
-- a release it is not recorded: the holder shall learn that it lost the lock. Sent twice, it finds the next holder.
-- KEYS  the lock key, its queue, its waiters' state
-- ARGV  identifier that was found, serial number of the request
-- reply "identifier:serial" when released; else {"identifier:serial", identifier found or ''}
local key, queue, waiters = KEYS[1], KEYS[2], KEYS[3]
local mark, holder = ARGV[1] .. ':' .. ARGV[2], redis.call('GET', key)
if holder ~= ARGV[1] then
  refuse_replica(key)
  return {mark, holder or ''}
end
if redis.call('EXISTS', queue) == 1 then
  grant_next(key, queue, waiters, holder)
else
  redis.call('DEL', key, waiters)
end
return mark
