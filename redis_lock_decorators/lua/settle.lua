-- Give a lock that was just taken its last form: the identifier it is known by, and no end if it is to have none.
-- A copy of the request that arrives late finds neither what it was to change nor anything else to do.
-- KEYS  the lock key
-- ARGV  identifier, serial number of the request, last identifier, 1 to take the end away (else 0)
-- reply "identifier:serial" when done; else {"identifier:serial", identifier found instead or ''}
local mark = ARGV[1] .. ':' .. ARGV[2]
local holder = redis.call('GET', KEYS[1])
if holder == ARGV[1] then
  if ARGV[4] == '1' then
    redis.call('SET', KEYS[1], ARGV[3])
  elseif ARGV[3] ~= holder then
    redis.call('SET', KEYS[1], ARGV[3], 'PX', math.max(1, redis.call('PTTL', KEYS[1])))
  end
elseif holder ~= ARGV[3] then
  return {mark, holder or ''}
end
return mark
