-- Move the end of a lock from where it was seen to where it is wanted. It may shorten, so it changes nothing once
-- the end is elsewhere: sent twice it moves the end once, and arriving late it undoes no later change.
-- KEYS  the lock key
-- ARGV  identifier, serial number of the request, end as seen, wanted end (Unix time in milliseconds)
-- reply "identifier:serial" when moved; {"identifier:serial", identifier, 0} if the end is where it is wanted already,
--       {"identifier:serial", identifier, 1} if it is elsewhere; {"identifier:serial", identifier found instead or ''}
local mark = ARGV[1] .. ':' .. ARGV[2]
local holder = redis.call('GET', KEYS[1])
if holder ~= ARGV[1] then
  return {mark, holder or ''}
end
local time = redis.call('TIME')
local ends = time[1] * 1000 + math.floor(time[2] / 1000) + redis.call('PTTL', KEYS[1])
-- The two clocks of this sum are read at different instants, on a busy machine a few milliseconds apart.
local function is_at(instant)
  return math.abs(ends - tonumber(instant)) <= 20
end
if is_at(ARGV[3]) then
  redis.call('PEXPIREAT', KEYS[1], ARGV[4])
  return mark
end
return {mark, holder, is_at(ARGV[4]) and 0 or 1}
