-- Release every key that holds this identifier: grant it to its first waiter, or delete it. Leave the others unchanged.
-- The release of a lock that has waiters, or had some a moment ago, is recorded: so a second copy of the request, which
-- finds another holder, can tell that the first one released it. Without waiters it is recorded only with an ARGV[4].
-- If others may use the identifier too, a holder by the same one may be another: what is recorded of releases and by settle.lua
-- decides.
-- KEYS  the lock keys, then their queues, then their waiters' states, then their records of releases
-- ARGV  identifier, serial number of the request, what the release is recorded as (nothing: the identifier), when it is
--       recorded even without waiters: "always", as the client may send copies on its own; "shared", as others may use the
--       identifier; "unless other", the same, but nothing is released if another acquisition got the identifier last; "if own",
--       the same, but nothing is released unless this one is known to have got it
-- reply "identifier:serial" when all are released; else {"identifier:serial", then for each key that was not:
--       its number from 0, the identifier found or '' (0: other data)}
local mark, count = ARGV[1] .. ':' .. ARGV[2], #KEYS / 4
local releaser, records = ARGV[3] or ARGV[1], ARGV[4]
local is_shared = records and records ~= 'always'
local function may_be_another(released)
  if was_released(released, releaser) then
    return true
  elseif records == 'shared' or was_released(released, 'by:' .. releaser) then
    return false
  elseif records == 'if own' then
    return true
  end
  local last = redis.pcall('ZRANGE', released, 0, 0, 'WITHSCORES')
  -- Without the right to call ZSCORE, the name shows that it is this one.
  return not last.err and tonumber(last[2]) == -1 and last[1] ~= 'by:' .. releaser
end
local refused, free = nil, {}
for i = 1, count do
  local key, queue, waiters, released = KEYS[i], KEYS[count + i], KEYS[2 * count + i], KEYS[3 * count + i]
  local holder = value(key)
  if holder ~= ARGV[1] or is_shared and may_be_another(released) then
    refuse_replica(key)
    -- A min-hold placeholder means that it was released, but it is still in the key.
    if holder == ARGV[1] .. ':rest' or not was_released(released, releaser) then
      refused = refused or {mark}
      refused[#refused + 1] = i - 1
      refused[#refused + 1] = holder or ''
    end
  else
    local companions = redis.call('EXISTS', queue, released)
    if companions == 2 or companions == 1 and redis.call('EXISTS', queue) == 1 then
      grant_next(key, queue, waiters, holder)
      record_release(released, releaser, true, true, is_shared)
    else
      free[#free + 1] = {key, waiters, (companions > 0 or records) and released}
    end
  end
end
-- After all others, as the user may have no right to grant a lock: then nothing was released.
for _, lock in ipairs(free) do
  redis.call('DEL', lock[1], lock[2])
  if lock[3] then
    record_release(lock[3], releaser, false, records, is_shared)
  end
end
return refused or mark
