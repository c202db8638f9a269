-- Hand on a lock whose holder let it lapse, and tell which waiters are not in its queue any more.
-- KEYS  the lock key, its queue, its facts
-- ARGV  any text, serial number of the request, then places in the queue
-- reply {"text:serial", holder's identifier or '', PTTL of the lock, then the numbers from 0 of places that are not there}
local key, queue, facts = KEYS[1], KEYS[2], KEYS[3]
if not redis.call('GET', key) then
  promote(key, queue, facts)
end
redis.call('PEXPIRE', queue, 600000)
local found = {ARGV[1] .. ':' .. ARGV[2], redis.call('GET', key) or '', redis.call('PTTL', key)}
for i = 3, #ARGV do
  if not redis.call('ZSCORE', queue, ARGV[i]) then
    found[#found + 1] = i - 3
  end
end
return found
