-- Tell how long a lock has left, and what time it is by the clock that will end it.
-- KEYS  the lock key
-- ARGV  identifier, serial number of the request
-- reply {"identifier:serial", Unix time in milliseconds, PTTL} if the key holds this identifier;
--       else {"identifier:serial", identifier found instead or ''}
local mark = ARGV[1] .. ':' .. ARGV[2]
local holder = redis.call('GET', KEYS[1])
if holder ~= ARGV[1] then
  return {mark, holder or ''}
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
return {mark, string.format('%.0f', now), redis.call('PTTL', KEYS[1])}
