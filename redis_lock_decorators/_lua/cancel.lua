-- Leave the queue of a lock, and release the lock if it was granted meanwhile.
-- KEYS  the lock key, its queue, its waiters' state
-- ARGV  identifier, serial number of the request, queue entry
-- reply "identifier:serial"
local key, queue, waiters = KEYS[1], KEYS[2], KEYS[3]
local holder = redis.call('GET', key)
unless_other('ZREM', queue, ARGV[3])
if holder == ARGV[1] then
  grant_next(key, queue, waiters, ARGV[1])
elseif redis.pcall('EXISTS', queue) == 0 and redis.pcall('HEXISTS', waiters, 'granted') == 0 then
  redis.pcall('DEL', waiters)
end
return ARGV[1] .. ':' .. ARGV[2]
