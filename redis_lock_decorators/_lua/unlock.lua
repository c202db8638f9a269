-- Release one key if it holds this identifier, without a message to waiters: for a slot that is being migrated, where no
-- script may use several keys. Waiters poll then. Sent twice, it changes nothing for the next holder: that has another
-- identifier, or the lock another end.
-- KEYS  the lock key
-- ARGV  identifier, serial number of the request, milliseconds of a min-hold placeholder (0: none), the end of the lock
--       if others may use the identifier
-- reply "identifier:serial" when released; else {"identifier:serial", identifier found or '' (0: other data)}
local mark, resting = ARGV[1] .. ':' .. ARGV[2], ARGV[1] .. ':rest'
local holder = redis.pcall('GET', KEYS[1])
if type(holder) == 'table' then
  if not string.find(holder.err, 'WRONGTYPE', 1, true) then return holder end
  holder = 0
end
if holder == ARGV[1] and ARGV[4] and ends_at(KEYS[1]) ~= tonumber(ARGV[4]) then
  refuse_replica(KEYS[1])
  return {mark, holder}
end
if holder == ARGV[1] then
  if ARGV[3] == '0' then
    redis.call('DEL', KEYS[1])
  elseif redis.pcall('SET', KEYS[1], resting, 'PX', ARGV[3]).err then -- memory is used up
    redis.call('PEXPIRE', KEYS[1], ARGV[3])
  end
else
  refuse_replica(KEYS[1])
  if holder ~= resting then
    return {mark, holder or ''}
  end
end
return mark
