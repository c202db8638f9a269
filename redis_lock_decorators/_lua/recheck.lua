-- Hand on a lock whose holder let it lapse, and tell which waiters are not in its queue any more.
-- KEYS  the lock key, its queue, its facts
-- ARGV  a channel or any text, serial number of the request, then places in the queue; none to have the first waiter
--       told of a lock that rests
-- reply {"text:serial", holder's identifier or '', PTTL of the lock, listeners of the channel or -1 if that is not known,
--       then the numbers from 0 of places that are not there}
local key, queue, facts = KEYS[1], KEYS[2], KEYS[3]
local kept = redis.pcall('PEXPIRE', queue, KEPT)
if type(kept) == 'table' and string.find(kept.err, 'READONLY', 1, true) then
  redis.call('PEXPIRE', queue, KEPT) -- a master that was replaced knows nothing of the lock: its successor is to be asked
end
local holder, left = redis.call('GET', key), redis.call('PTTL', key)
redis.call('ZSCORE', queue, ARGV[3] or '') -- what may not be asked, or is no queue, ends this before the lock is handed on
if not holder then
  promote(key, queue, facts)
  holder, left = redis.call('GET', key), redis.call('PTTL', key)
elseif #ARGV == 2 and string.sub(holder, -5) == ':rest' then
  stir(redis.pcall('ZRANGE', queue, 0, 99))
end
local found = {ARGV[1] .. ':' .. ARGV[2], holder or '', left, hearers(ARGV[1]) or -1}
for i = 3, #ARGV do
  if not redis.call('ZSCORE', queue, ARGV[i]) then
    found[#found + 1] = i - 3
  end
end
return found
