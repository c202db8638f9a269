-- Let every key that holds this identifier stand for so long under a value that nobody holds it by.
-- A copy of the request finds that value and changes nothing.
-- KEYS  the lock keys
-- ARGV  identifier, serial number of the request, milliseconds
-- reply "identifier:serial" when all stand so; else {"identifier:serial", identifier found instead or ''}
local mark, resting = ARGV[1] .. ':' .. ARGV[2], ARGV[1] .. ':rest'
local stranger
for _, key in ipairs(KEYS) do
  local holder = redis.call('GET', key)
  if holder == ARGV[1] then
    redis.call('SET', key, resting, 'PX', ARGV[3])
  elseif holder ~= resting then
    stranger = holder or stranger or ''
  end
end
return stranger and {mark, stranger} or mark
