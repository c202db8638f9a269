-- Extend the keys of many leases, each to at least its lease from now if it holds its own identifier. Never adds and never
-- shortens; a lost lease does not prevent the renewal of the others.
-- KEYS  the lock keys
-- ARGV  identifier, serial number of the request, then for each key: its identifier, its lease in milliseconds
-- reply "identifier:serial" when all were renewed; else {"identifier:serial", then for each key that was not:
--       its number from 0, the identifier found or '' (0: other data)}
local lost, is_written = {ARGV[1] .. ':' .. ARGV[2]}, false
for i, key in ipairs(KEYS) do
  local holder, lease, left = redis.pcall('GET', key), ARGV[2 * i + 2], redis.call('PTTL', key)
  if type(holder) == 'table' then
    if not string.find(holder.err, 'WRONGTYPE', 1, true) then return holder end
    holder = 0
  end
  if holder ~= ARGV[2 * i + 1] then
    lost[#lost + 1] = i - 1
    lost[#lost + 1] = holder or ''
  elseif left ~= -1 and left < tonumber(lease) then
    redis.call('PEXPIRE', key, lease)
    is_written = true
  end
end
if not is_written then
  refuse_replica(KEYS[1])
end
return #lost > 1 and lost or lost[1]
