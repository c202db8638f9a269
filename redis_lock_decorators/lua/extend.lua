-- Give every key a new lease from now, if all of them hold this identifier. Not additive: sent twice, it extends once.
-- KEYS  the lock keys
-- ARGV  identifier, serial number of the request, lease in milliseconds
-- reply "identifier:serial" when extended; else {"identifier:serial", identifier found instead or ''}
local mark = ARGV[1] .. ':' .. ARGV[2]
for _, key in ipairs(KEYS) do
  local holder = redis.call('GET', key)
  if holder ~= ARGV[1] then
    return {mark, holder or ''}
  end
end
for _, key in ipairs(KEYS) do
  redis.call('PEXPIRE', key, ARGV[3])
end
return mark
