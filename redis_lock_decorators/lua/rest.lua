-- Let every key that holds this identifier stand for so long under a value that nobody holds it by.
-- A copy of the request finds that value and changes nothing.
-- KEYS  the lock keys, then their queues, then their facts
-- ARGV  identifier, serial number of the request, milliseconds, for how many it is to be noted who let go: nothing, unless
--       a client may send copies that nobody knows of
-- reply "identifier:serial" when all stand so; else {"identifier:serial", identifier found instead or '' (0: other
--       data)}
local mark, resting, count = ARGV[1] .. ':' .. ARGV[2], ARGV[1] .. ':rest', #KEYS / 3
local stranger
for i = 1, count do
  local holder = value(KEYS[i])
  if holder == ARGV[1] then
    if redis.pcall('SET', KEYS[i], resting, 'PX', ARGV[3]).err then -- memory is used up
      redis.call('PEXPIRE', KEYS[i], ARGV[3])
    end
    redis.call('HDEL', KEYS[2 * count + i], 'granted', 'from')
    note_parting(KEYS[2 * count + i], holder, ARGV[4])
    stir(redis.call('ZRANGE', KEYS[count + i], 0, 99))
  elseif holder ~= resting and redis.pcall('HGET', KEYS[2 * count + i], 'from') ~= ARGV[1] then
    stranger = holder or stranger or ''
  end
end
return stranger and {mark, stranger} or mark
