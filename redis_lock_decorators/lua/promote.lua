-- Not a script by itself: what stands before those that may hand a lock on.
-- Give a lock that nobody holds any more to the first waiter whose process listens; if there is none, free it.
-- In the queue a waiter is "channel|identifier|grant in milliseconds", by its ticket.
local function promote(key, queue, facts, was_let_go)
  local lapsed = not was_let_go and redis.call('HGET', facts, 'granted')
  if lapsed then -- nobody let it go: until that process asks again, its waiters are only told to come again
    redis.call('HDEL', facts, 'granted')
    redis.pcall('HSET', facts, 'suspect:' .. lapsed, 1)
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
        if redis.pcall('HSET', facts, 'granted', channel) == 1 then
          redis.pcall('PEXPIRE', facts, 600000)
        end
        return
      end
    end
    first = redis.call('ZPOPMIN', queue)
  end
  redis.call('DEL', key, facts)
end
