-- Take every key or none. A key that already holds this identifier counts as free: the request was sent twice.
-- KEYS  the lock keys
-- ARGV  identifier, serial number of the request, lease in milliseconds
-- reply "identifier:serial" when held; else {"identifier:serial", holder's identifier, its PTTL}
local mark = ARGV[1] .. ':' .. ARGV[2]
if #KEYS == 1 and redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[3]) then
  return mark
end
for _, key in ipairs(KEYS) do
  local holder = redis.call('GET', key)
  if holder and holder ~= ARGV[1] then
    return {mark, holder, redis.call('PTTL', key)}
  end
end
for _, key in ipairs(KEYS) do
  -- A copy of the request that arrives late must not shorten a lease that was extended since, nor end an endless one.
  local left = redis.call('PTTL', key)
  if left ~= -1 and left < tonumber(ARGV[3]) then
    redis.call('SET', key, ARGV[1], 'PX', ARGV[3])
  end
end
return mark
