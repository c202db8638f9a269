-- Leave the queue of a lock, and let the lock go if it was handed over meanwhile.
-- KEYS  the lock key, its queue, its facts
-- ARGV  identifier, serial number of the request, place in the queue
-- reply "identifier:serial"
local key, queue, facts = KEYS[1], KEYS[2], KEYS[3]
local holder = redis.call('GET', key)
unless_other('ZREM', queue, ARGV[3])
if holder == ARGV[1] then
  promote(key, queue, facts, ARGV[1])
elseif redis.pcall('EXISTS', queue) == 0 and redis.pcall('HEXISTS', facts, 'granted') == 0 then
  redis.pcall('DEL', facts)
end
return ARGV[1] .. ':' .. ARGV[2]
