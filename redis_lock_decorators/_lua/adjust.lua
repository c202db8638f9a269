-- Move the end of a lock from where it was found to where it is wanted. As this may shorten the lease, nothing changes if
-- the end was moved since, nor after a time limit: a second copy does nothing, a late one undoes no later change.
-- KEYS  the lock key
-- ARGV  identifier, serial number of the request, end as found, wanted end, time limit of this request (Unix milliseconds)
-- reply "identifier:serial" when moved; {"identifier:serial", identifier, 0} if the end is already the wanted one,
--       {"identifier:serial", identifier, 1} if it is another; else {"identifier:serial", identifier found or ''}
local mark = ARGV[1] .. ':' .. ARGV[2]
local holder = redis.call('GET', KEYS[1])
if holder ~= ARGV[1] then
  refuse_replica(KEYS[1])
  return {mark, holder or ''}
end
local found, time = ends_at(KEYS[1]), redis.call('TIME')
if found == tonumber(ARGV[3]) and time[1] * 1000 + time[2] / 1000 <= tonumber(ARGV[5]) then
  redis.call('PEXPIREAT', KEYS[1], ARGV[4])
  return mark
end
refuse_replica(KEYS[1])
return {mark, holder, found == tonumber(ARGV[4]) and 0 or 1}
