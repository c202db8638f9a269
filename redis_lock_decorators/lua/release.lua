-- Delete every key that holds this identifier and leave the others alone.
-- KEYS  the lock keys
-- ARGV  identifier, serial number of the request
-- reply "identifier:serial" when all were deleted; else {"identifier:serial", identifier found instead or ''}
local mark = ARGV[1] .. ':' .. ARGV[2]
local stranger
for _, key in ipairs(KEYS) do
  local holder = redis.call('GET', key)
  if holder == ARGV[1] then
    redis.call('DEL', key)
  elseif holder then
    stranger = holder
  else
    stranger = stranger or ''
  end
end
return stranger and {mark, stranger} or mark
