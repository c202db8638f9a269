-- Extend every key to at least this lease from now, if all of them hold this identifier. Never adds and never shortens:
-- sent twice or late, it changes nothing.
-- KEYS  the lock keys
-- ARGV  identifier, serial number of the request, lease in milliseconds
-- reply "identifier:serial" when extended; else {"identifier:serial", identifier found or '' (0: other data)}
local mark = ARGV[1] .. ':' .. ARGV[2]
for _, key in ipairs(KEYS) do
  local holder = redis.pcall('GET', key)
  if type(holder) == 'table' then
    if not string.find(holder.err, 'WRONGTYPE', 1, true) then return holder end
    holder = 0
  end
  if holder ~= ARGV[1] then
    refuse_replica(key)
    return {mark, holder or ''}
  end
end
for _, key in ipairs(KEYS) do
  local left = redis.call('PTTL', key)
  if left ~= -1 and left < tonumber(ARGV[3]) then
    redis.call('PEXPIRE', key, ARGV[3])
  else
    refuse_replica(key)
  end
end
return mark
