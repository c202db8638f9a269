-- Acquire all keys or none. A key that already holds this identifier counts as free: the request was sent twice. (Not if
-- others may use the same identifier, see ARGV.)
-- KEYS  the lock keys; perhaps a key that never exists, see ARGV
-- ARGV  identifier, serial number of the request, lease in milliseconds, 1 to return the server's time, 2 if others may use
--       the identifier too, 3 if the last key never exists, so that no node runs this while its slot is moving, 4 to call
--       GET first, as with 1, 2 and 3 (else nothing)
-- reply "identifier:serial" when acquired; else {"identifier:serial", holder's identifier, its PTTL}, and of several keys
--       also the number of the one that is held, from 1.
--       If the time is requested, always a list with the time at its end (Unix milliseconds)
local mark = ARGV[1] .. ':' .. ARGV[2]
if ARGV[4] == '3' then
  KEYS[#KEYS] = nil
end
local function timed(...)
  if ARGV[4] ~= '1' then
    return select('#', ...) > 0 and {mark, ...} or mark
  end
  local time, reply = redis.call('TIME'), {mark, ...}
  reply[#reply + 1] = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
  return reply
end
if ARGV[4] == '1' then
  redis.call('TIME') -- a user without the right to call it gets the error before the lock is acquired
end
if ARGV[4] then
  redis.call('GET', KEYS[1]) -- the same, as without this right no release is possible
end
if #KEYS == 1 and redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[3]) then
  return timed()
end
for i, key in ipairs(KEYS) do
  local holder = redis.call('GET', key)
  if holder and (holder ~= ARGV[1] or ARGV[4] == '2') then
    if #KEYS > 1 then
      refuse_replica(key)
      return timed(holder, redis.call('PTTL', key), i)
    end
    return timed(holder, redis.call('PTTL', key))
  end
end
for _, key in ipairs(KEYS) do
  -- A late copy of the request must not shorten a lease that was extended since, nor give an endless lock an end.
  -- The key is written in any case: WAIT waits for replicas to receive the last write of this connection.
  local left = redis.call('PTTL', key)
  if left == -1 or left > tonumber(ARGV[3]) then
    redis.call('SET', key, ARGV[1], 'KEEPTTL')
  else
    redis.call('SET', key, ARGV[1], 'PX', ARGV[3])
  end
end
return timed()
