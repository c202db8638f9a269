-- Release every key that holds this identifier, but keep it unavailable for some time by a min-hold placeholder.
-- A copy of the request finds the placeholder and changes nothing; or, if others waited, the record of the release.
-- KEYS  the lock keys, then their queues, then their waiters' states, then their records of releases
-- ARGV  identifier, serial number of the request, milliseconds, what the release is recorded as (nothing: the identifier),
--       1 to record it even without waiters: the client may send copies on its own
-- reply "identifier:serial" when all are released; else {"identifier:serial", then for each key that was not:
--       its number from 0, the identifier found or '' (0: other data)}
local mark, resting, count = ARGV[1] .. ':' .. ARGV[2], ARGV[1] .. ':rest', #KEYS / 4
local releaser = ARGV[4] or ARGV[1]
local refused
for i = 1, count do
  local released, holder = KEYS[3 * count + i], value(KEYS[i])
  if holder == ARGV[1] then
    if redis.pcall('SET', KEYS[i], resting, 'PX', ARGV[3]).err then -- memory is used up
      redis.call('PEXPIRE', KEYS[i], ARGV[3])
    end
    redis.pcall('HDEL', KEYS[2 * count + i], 'granted')
    local entries = redis.pcall('ZRANGE', KEYS[count + i], 0, 99)
    if #entries > 0 or ARGV[5] then
      record_release(released, releaser, #entries > 0, true)
    end
    wake_one(entries)
  else
    refuse_replica(KEYS[i])
    if holder ~= resting and not was_released(released, releaser) then
      refused = refused or {mark}
      refused[#refused + 1] = i - 1
      refused[#refused + 1] = holder or ''
    end
  end
end
return refused or mark
