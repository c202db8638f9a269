-- Let somebody else's lock go, by the identifier that was seen in it: hand it to its first waiter, or delete it. Unlike a
-- release it is noted nowhere: the holder is to learn that it lost the lock. Sent twice, it finds the next holder.
-- KEYS  the lock key, its queue, its facts
-- ARGV  identifier that was seen, serial number of the request
-- reply "identifier:serial" when let go; else {"identifier:serial", identifier found instead or ''}
local key, queue, facts = KEYS[1], KEYS[2], KEYS[3]
local mark, holder = ARGV[1] .. ':' .. ARGV[2], redis.call('GET', key)
if holder ~= ARGV[1] then
  return {mark, holder or ''}
end
if redis.call('EXISTS', queue) == 1 then
  promote(key, queue, facts, holder)
else
  redis.call('DEL', key, facts)
end
return mark
