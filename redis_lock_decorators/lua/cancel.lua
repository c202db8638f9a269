-- Leave the queue of a lock, and let the lock go if it was handed over meanwhile.
-- KEYS  the lock key, its queue, its facts
-- ARGV  identifier, serial number of the request, place in the queue
-- reply "identifier:serial"
local key, queue, facts = KEYS[1], KEYS[2], KEYS[3]
redis.call('ZREM', queue, ARGV[3])
if redis.call('GET', key) == ARGV[1] then
  promote(key, queue, facts, ARGV[1])
elseif redis.call('EXISTS', queue) == 0 and redis.call('HEXISTS', facts, 'granted') == 0 then
  redis.call('DEL', facts)
end
return ARGV[1] .. ':' .. ARGV[2]
