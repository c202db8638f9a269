-- Grant a lock whose holder let it expire to the next waiter, and return which waiters are no longer in its queue.
-- KEYS  the lock key, its queue, its waiters' state
-- ARGV  a channel or any text, serial number of the request, then queue entries; none to have the first waiter notified
--       of a min-hold placeholder
-- reply {"text:serial", holder's identifier or '', PTTL of the lock, number of subscribers of the channel or -1 if unknown,
--       then the numbers, from 0, of the entries that are not in the queue}
local key, queue, waiters = KEYS[1], KEYS[2], KEYS[3]
redis.call('ZSCORE', queue, ARGV[3] or '') -- without the right to it, or if this is no queue: fail before anything is written
local kept = redis.pcall('PEXPIRE', queue, COMPANION_TTL)
if type(kept) == 'table' and string.find(kept.err, 'READONLY', 1, true) then
  redis.call('PEXPIRE', queue, COMPANION_TTL) -- a replaced master does not have the lock: ask the new one
end
local holder, left = redis.call('GET', key), redis.call('PTTL', key)
if not holder then
  grant_next(key, queue, waiters)
  holder, left = redis.call('GET', key), redis.call('PTTL', key)
elseif #ARGV == 2 and string.sub(holder, -5) == ':rest' then
  wake_one(redis.pcall('ZRANGE', queue, 0, 99))
end
local found = {ARGV[1] .. ':' .. ARGV[2], holder or '', left, subscribers(ARGV[1]) or -1}
for i = 3, #ARGV do
  if not redis.call('ZSCORE', queue, ARGV[i]) then
    found[#found + 1] = i - 3
  end
end
return found
