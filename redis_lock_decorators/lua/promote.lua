-- Not a script by itself: what stands before those that may hand a lock on.
-- Give a lock that nobody holds any more to the first waiter whose process listens; if there is none, free it.
-- In the queue a waiter is "channel|identifier|grant in milliseconds", by its ticket; who was handed the lock last is
-- noted as "channel|identifier". Releaser: the identifier that lets the lock go, nil if it lapsed.
local function promote(key, queue, facts, releaser)
  local granted = redis.call('HGET', facts, 'granted')
  if granted then
    local channel, identifier = string.match(granted, '^([^|]+)|(.+)$')
    if identifier ~= releaser then -- it let the lock lapse: until its process asks again, none there is handed it
      redis.call('HDEL', facts, 'granted')
      redis.pcall('HSET', facts, 'suspect:' .. channel, 1)
    end
  end
  local gone = {}
  local function tell(channel, word)
    if not gone[channel] then
      local heard = redis.pcall('PUBLISH', channel, word)
      gone[channel] = heard == 0 or type(heard) == 'table'
    end
    return not gone[channel]
  end
  local first = redis.call('ZPOPMIN', queue)
  while #first > 0 do
    local channel, identifier, grant = string.match(first[1], '^([^|]+)|([^|]+)|(%d+)$')
    if redis.call('HEXISTS', facts, 'suspect:' .. channel) == 1 then
      tell(channel, 'again|' .. identifier .. '|' .. key)
    else
      -- First the key, then the word. Where memory is used up, waiters come back by their own timers.
      if redis.pcall('SET', key, identifier, 'PX', grant).err then
        break
      end
      if tell(channel, 'turn|' .. identifier .. '|' .. key) then
        if redis.pcall('HSET', facts, 'granted', channel .. '|' .. identifier) == 1 then
          redis.pcall('PEXPIRE', facts, 600000)
        end
        return
      end
    end
    first = redis.call('ZPOPMIN', queue)
  end
  redis.call('DEL', key, facts)
end
