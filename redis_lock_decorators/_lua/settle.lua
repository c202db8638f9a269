-- Give a lock that was just taken its last form: the identifier it is known by, and no end if it is to have none.
-- A copy of the request that arrives late finds another identifier; or, if a late copy of the acquisition brought that
-- back, a later end than the lock had when it was taken: it changes nothing then.
-- If the lock was handed over, it is noted by which identifier: that it was entered is noted too, as nobody will let it
-- go by that one.
-- KEYS  the lock key; where it was waited for, its queue and its facts too
-- ARGV  identifier, serial number of the request, last identifier, 1 to take the end away (else 0), the end that the
--       lock has at the latest (Unix milliseconds)
-- reply "identifier:serial" when done; {"identifier:serial", identifier, its end} if it ends later;
--       else {"identifier:serial", identifier found instead or ''}
local mark = ARGV[1] .. ':' .. ARGV[2]
local holder = redis.call('GET', KEYS[1])
if holder == ARGV[3] and holder ~= ARGV[1] then
  return mark
elseif holder ~= ARGV[1] then
  return {mark, holder or ''}
end
local found = ends_at(KEYS[1])
if found > tonumber(ARGV[5]) then
  return {mark, holder, found}
end
local granted = KEYS[3] and redis.call('HGET', KEYS[3], 'granted')
if granted and string.match(granted, '|([^|]+)|') == holder then
  redis.call('HDEL', KEYS[3], 'granted')
end
if ARGV[4] == '1' or found == -1 then
  redis.call('SET', KEYS[1], ARGV[3])
elseif ARGV[3] ~= holder then
  redis.call('SET', KEYS[1], ARGV[3], 'PX', math.max(1, redis.call('PTTL', KEYS[1])))
end
return mark
