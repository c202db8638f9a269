-- Included before the scripts that compare ends.
-- When a key expires, in Unix milliseconds; -1 if never. It distinguishes two states of a lock: no other client sets
-- exactly this end by chance, even if a late request brought the identifier back.
local function ends_at(key)
  local found = redis.pcall('PEXPIRETIME', key)
  if type(found) == 'number' then
    return found
  end
  -- Before Redis 7.0 it is TIME plus PTTL, which is exact if both were read in the same millisecond.
  local function now()
    local time = redis.call('TIME')
    return time[1] * 1000 + math.floor(time[2] / 1000)
  end
  local before, left
  for _ = 1, 100 do
    before, left = now(), redis.call('PTTL', key)
    if left < 0 or before == now() then
      break
    end
  end
  return left < 0 and left or before + left
end
