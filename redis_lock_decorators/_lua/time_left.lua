-- Return when a lock expires, and how long it has left.
-- KEYS  the lock key
-- ARGV  identifier, serial number of the request, 1 if only a master may answer (else nothing)
-- reply {"identifier:serial", end in Unix milliseconds or -1, PTTL} if the key holds this identifier;
--       else {"identifier:serial", identifier found or nil}
local mark = ARGV[1] .. ':' .. ARGV[2]
local holder = redis.call('GET', KEYS[1])
if ARGV[3] == '1' then
  refuse_replica(KEYS[1])
end
if holder ~= ARGV[1] then
  return {mark, holder}
end
return {mark, string.format('%.0f', ends_at(KEYS[1])), redis.call('PTTL', KEYS[1])}
