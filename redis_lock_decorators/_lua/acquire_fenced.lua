-- Acquire all keys or none, and number the acquisition: one more than the last number, or the server's clock if that is
-- greater, so that numbers grow even if the counters were lost. A key that already holds this identifier counts as free.
-- KEYS  the lock keys, then for each of them the hash with its last number and the identifier that has it; perhaps one more
--       that never exists, so that no node runs this while its slot is moving
-- ARGV  identifier, serial number of the request, lease in milliseconds, time to live of the numbers in milliseconds
-- reply {"identifier:serial", number} when acquired; else {"identifier:serial", holder's identifier, its PTTL, number of
--       the lock key that is held, from 1}
local mark, count = ARGV[1] .. ':' .. ARGV[2], math.floor(#KEYS / 2)
local fresh, fence = false, 0
for i = 1, count do
  local holder = redis.call('GET', KEYS[i])
  if holder and holder ~= ARGV[1] then
    refuse_replica(KEYS[i])
    return {mark, holder, redis.call('PTTL', KEYS[i]), i}
  end
  -- A lock that was granted in a queue holds this identifier already, but has no number yet.
  fresh = fresh or not holder or redis.call('HGET', KEYS[count + i], 'of') ~= ARGV[1]
  fence = math.max(fence, tonumber(redis.call('HGET', KEYS[count + i], 'fence') or 0))
end
if fresh then
  local time = redis.call('TIME')
  fence = math.max(fence + 1, time[1] * 1000000 + time[2])
end
-- The numbers first: scripts are not rolled back, and there must be no lock without a number, and no number without a time to
-- live: a user without the right to PEXPIRE is refused before any is written.
for i = 1, count do
  local is_there = redis.call('PEXPIRE', KEYS[count + i], ARGV[4]) == 1
  redis.call('HSET', KEYS[count + i], 'fence', string.format('%.0f', fence), 'of', ARGV[1])
  if not is_there then
    redis.call('PEXPIRE', KEYS[count + i], ARGV[4])
  end
end
for i = 1, count do
  local left = redis.call('PTTL', KEYS[i])
  if left ~= -1 and left < tonumber(ARGV[3]) then
    redis.call('SET', KEYS[i], ARGV[1], 'PX', ARGV[3])
  end
end
return {mark, fence}
