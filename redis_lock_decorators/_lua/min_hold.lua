-- Let every key that holds this identifier stand for so long under a value that nobody holds it by.
-- A copy of the request finds that value and changes nothing; or, if others waited, the note of who released it.
-- KEYS  the lock keys, then their queues, then their facts, then their notes of releases
-- ARGV  identifier, serial number of the request, milliseconds, what the releaser is noted by (nothing: the identifier), 1
--       if it is to be noted though nobody waits: a client may send copies that nobody knows of
-- reply "identifier:serial" when all stand so; else {"identifier:serial", identifier found instead or '' (0: other
--       data)}
local mark, resting, count = ARGV[1] .. ':' .. ARGV[2], ARGV[1] .. ':rest', #KEYS / 4
local releaser = ARGV[4] or ARGV[1]
local stranger
for i = 1, count do
  local released, holder = KEYS[3 * count + i], value(KEYS[i])
  if holder == ARGV[1] then
    if redis.pcall('SET', KEYS[i], resting, 'PX', ARGV[3]).err then -- memory is used up
      redis.call('PEXPIRE', KEYS[i], ARGV[3])
    end
    redis.pcall('HDEL', KEYS[2 * count + i], 'granted')
    local places = redis.pcall('ZRANGE', KEYS[count + i], 0, 99)
    if #places > 0 or ARGV[5] then
      note_release(released, releaser, #places > 0, true)
    end
    stir(places)
  elseif holder ~= resting and not was_released(released, releaser) then
    stranger = holder or stranger or ''
  end
end
return stranger and {mark, stranger} or mark
