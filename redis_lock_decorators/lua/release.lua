-- Let go every key that holds this identifier: hand it to its first waiter, or delete it. Leave the others alone.
-- Who handed a lock on is noted, so that a copy of the request that finds another there knows that it was let go.
-- KEYS  the lock keys, then their queues, then their facts
-- ARGV  identifier, serial number of the request, for how many milliseconds it is to be noted who let go though nobody
--       waits: nothing, unless a client may send copies that nobody knows of
-- reply "identifier:serial" when all were let go; else {"identifier:serial", identifier found instead or '' (0: other data)}
local mark, count = ARGV[1] .. ':' .. ARGV[2], #KEYS / 3
local stranger
for i = 1, count do
  local key, queue, facts = KEYS[i], KEYS[count + i], KEYS[2 * count + i]
  local holder = value(key)
  if holder ~= ARGV[1] then
    -- Where it rests it was let go too, and stands all the same.
    if holder == ARGV[1] .. ':rest' or redis.pcall('HGET', facts, 'from') ~= ARGV[1] then
      stranger = holder or stranger or ''
    end
  else
    if redis.call('EXISTS', queue) == 1 then
      redis.pcall('HSET', facts, 'from', holder)
      promote(key, queue, facts, holder)
    else
      redis.call('DEL', key, facts)
    end
    note_parting(facts, holder, ARGV[3])
  end
end
return stranger and {mark, stranger} or mark
