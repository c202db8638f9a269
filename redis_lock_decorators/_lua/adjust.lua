-- Move the end of a lock from where it was seen to where it is wanted. It may shorten, so it changes nothing once
-- the end is elsewhere, nor after its time: sent twice it moves the end once, and arriving late it undoes no later change.
-- KEYS  the lock key
-- ARGV  identifier, serial number of the request, end as seen, wanted end, last time to be run (Unix milliseconds)
-- reply "identifier:serial" when moved; {"identifier:serial", identifier, 0} if the end is where it is wanted already,
--       {"identifier:serial", identifier, 1} if it is elsewhere; {"identifier:serial", identifier found instead or ''}
local mark = ARGV[1] .. ':' .. ARGV[2]
local holder = redis.call('GET', KEYS[1])
if holder ~= ARGV[1] then
  return {mark, holder or ''}
end
local found, time = ends_at(KEYS[1]), redis.call('TIME')
if found == tonumber(ARGV[3]) and time[1] * 1000 + time[2] / 1000 <= tonumber(ARGV[5]) then
  redis.call('PEXPIREAT', KEYS[1], ARGV[4])
  return mark
end
return {mark, holder, found == tonumber(ARGV[4]) and 0 or 1}
