-- Let go every key that holds this identifier: hand it to its first waiter, or delete it. Leave the others alone.
-- Who releases a lock for which others wait, or waited a moment ago, is noted: a copy of the request that finds another
-- holder knows by that that it was done. Where nobody waits nothing is noted.
-- KEYS  the lock keys, then their queues, then their facts, then their notes of releases
-- ARGV  identifier, serial number of the request, what the releaser is noted by (nothing: the identifier), 1 if it is to be
--       noted though nobody waits: a client may send copies that nobody knows of
-- reply "identifier:serial" when all were let go; else {"identifier:serial", identifier found instead or '' (0: other data)}
local mark, count = ARGV[1] .. ':' .. ARGV[2], #KEYS / 4
local releaser, is_always_noted = ARGV[3] or ARGV[1], ARGV[4]
local stranger
for i = 1, count do
  local key, queue, facts, released = KEYS[i], KEYS[count + i], KEYS[2 * count + i], KEYS[3 * count + i]
  local holder = value(key)
  if holder ~= ARGV[1] then
    -- Where it rests it was let go too, and stands all the same.
    if holder == ARGV[1] .. ':rest' or not was_released(released, releaser) then
      stranger = holder or stranger or ''
    end
  else
    local beside = redis.call('EXISTS', queue, released)
    local is_awaited = beside == 2 or beside == 1 and redis.call('EXISTS', queue) == 1
    if is_awaited then
      promote(key, queue, facts, holder)
    else
      redis.call('DEL', key, facts)
    end
    if beside > 0 or is_always_noted then
      note_release(released, releaser, is_awaited, is_awaited or is_always_noted)
    end
  end
end
return stranger and {mark, stranger} or mark
