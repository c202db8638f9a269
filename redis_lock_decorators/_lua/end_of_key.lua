-- Not a script by itself: what stands before those that compare ends.
-- When a key ends, to the millisecond of Unix time; -1 if it has no end. As nobody else sets that very end by chance, it
-- tells one state of a lock from all others, where its identifier came back by a request that arrived late.
local function ends_at(key)
  local found = redis.pcall('PEXPIRETIME', key)
  if type(found) == 'number' then
    return found
  end
  -- Before Redis 7.0 it is a sum of two clocks, which holds if no millisecond passed between them.
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
