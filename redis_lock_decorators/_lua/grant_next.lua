-- Included before the scripts that may grant a lock. _lua/__init__.py sets before it COMPANION_TTL: the time to live of the
-- queue and of the waiters' state, and RECORD_TTL: how long a release is recorded, both in milliseconds; MOST_RECORDS: how many
-- releases of a lock are recorded.
-- A queue entry is "channel|identifier|grant in milliseconds", with its ticket as the score. The state of the waiters has the
-- entry that the lock was last granted to ("granted"), until its waiter entered or released, and the channels of processes
-- that let a grant expire ("suspect:channel"). Messages, on channels that any client may publish and subscribe to:
--   turn|hint|proof  the lock was granted to the waiter. The hint names its entry and is public; the proof is made of what
--                    only this server process, clients with the right to INFO, and the waiter know.
--   again|hint       the waiter should join the queue again. Not proved, as it costs no more than a request.

-- At most so many entries are skipped in one call: the server has other clients to serve.
local MOST = 300
-- At most so many if no waiter is found that would continue immediately.
local MOST_UNREACHED = 10 * MOST

-- The channel, the identifier and the grant (at most 100 seconds) of an entry; nothing if it is malformed, as one that was
-- written by hand.
local function parts(entry)
  local channel, identifier, grant = string.match(entry, '^([^|]+)|([^|]+)|([1-9]%d*)$')
  if channel and #grant < 6 then
    return channel, identifier, grant
  end
end

-- The reply to GET; 0 for other data.
local function value(key)
  local found = redis.pcall('GET', key)
  if type(found) ~= 'table' then
    return found
  end
  return string.find(found.err, 'WRONGTYPE', 1, true) and 0 or redis.call('GET', key)
end

-- The reply to a command; nil if the key has other data, which must not prevent the release of a lock.
local function unless_other(...)
  local found = redis.pcall(...)
  if type(found) ~= 'table' or not found.err then
    return found
  end
  return not string.find(found.err, 'WRONGTYPE', 1, true) and redis.call(...) or nil
end

-- The number of subscribers of a channel at this server, without patterns; nil without the right to ask for it.
local function subscribers(channel)
  local found = redis.pcall('PUBSUB', 'NUMSUB', channel)
  return not found.err and found[2] or nil
end

local function proof(identifier, key)
  local info = redis.pcall('INFO', 'server')
  local run_id = type(info) == 'string' and string.match(info, 'run_id:(%x+)')
  return run_id and redis.sha1hex(run_id .. '|' .. identifier .. '|' .. key) or ''
end

-- Whether any subscriber received the message.
local function publish(channel, message)
  local received = redis.pcall('PUBLISH', channel, message)
  return type(received) == 'number' and received > 0
end

local function publish_again(channel, identifier)
  return publish(channel, 'again|' .. redis.sha1hex(identifier))
end

-- Have the first of these waiters whose process is subscribed join the queue again; returns whether one of them is.
-- entries may be an error reply (callers pass redis.pcall(...)): it has no items, so no waiter is woken.
local function wake_one(entries)
  for _, entry in ipairs(entries) do
    local channel, identifier = parts(entry)
    if channel and subscribers(channel) ~= 0 and publish_again(channel, identifier) then
      return true
    end
  end
  return false
end

-- The same from the end of a queue: the waiters that arrived last are most likely alive.
local function wake_last(queue, waiters)
  local last, entries = redis.pcall('ZRANGE', queue, -100, -1), {}
  for i = #last, 1, -1 do
    if redis.pcall('HEXISTS', waiters, 'suspect:' .. (parts(last[i]) or '')) == 0 then
      entries[#entries + 1] = last[i]
    end
  end
  return wake_one(entries)
end

-- Delete the keys of a lock. After a grant that no waiter received, an error is ignored: the grant expires.
local function free(is_granted, ...)
  if is_granted then
    redis.pcall('DEL', ...)
  else
    redis.call('DEL', ...)
  end
end

-- Grant a lock that has no holder to the first waiter whose process is subscribed; if there is none, free it.
-- If too many entries of dead processes come first, the lock is free meanwhile, and the next request for it continues here:
-- one waiter is notified to send one, the others poll.
-- releaser: the identifier that releases the lock, nil if it expired.
-- alive: the channel of the requesting process, which is no suspect even if it let a grant expire.
-- An error may end this before the lock is granted, but not afterwards. A key with other data counts as an empty queue.
local function grant_next(key, queue, waiters, releaser, alive)
  local granted = unless_other('HGET', waiters, 'granted')
  if granted then
    local channel, identifier = parts(granted)
    if not channel or identifier ~= releaser then
      redis.call('HDEL', waiters, 'granted')
      if channel and channel ~= alive then -- the grant expired: nothing is granted to this process until its next request
        redis.pcall('HSET', waiters, 'suspect:' .. channel, 1)
        redis.pcall('PEXPIRE', waiters, COMPANION_TTL) -- now, as a command below may fail
      end
    end
  end
  local known, unreached, skipped, is_granted = {}, 0, 0, false
  local first = unless_other('ZPOPMIN', queue) or {}
  while #first > 0 do
    local channel, identifier, grant = parts(first[1])
    if channel then
      known[channel] = known[channel] or subscribers(channel) or 1
    end
    if channel and known[channel] == 0 then
      -- Dead, or subscribed at the server that had this slot before; messages from here may reach it in that case.
      unreached = unreached + 1
      if unreached <= 100 then
        publish_again(channel, identifier)
      end
    elseif channel and redis.pcall('HEXISTS', waiters, 'suspect:' .. channel) == 1 then
      publish_again(channel, identifier)
    elseif channel then
      -- First the key, then the message. If memory is used up, waiters recheck by their own timers.
      if redis.pcall('SET', key, identifier, 'PX', grant).err then
        redis.pcall('ZADD', queue, first[2], first[1]) -- it remains the first, for whoever has the right to grant it
        redis.pcall('PEXPIRE', queue, COMPANION_TTL)
        break
      end
      is_granted = true
      if publish(channel, 'turn|' .. redis.sha1hex(identifier) .. '|' .. proof(identifier, key)) then
        redis.pcall('HSET', waiters, 'granted', first[1])
        redis.pcall('PEXPIRE', waiters, COMPANION_TTL)
        return
      end
      known[channel] = 0
    end
    skipped = skipped + 1
    if (skipped == MOST or skipped == MOST_UNREACHED) and redis.pcall('EXISTS', queue) == 1 then
      if wake_last(queue, waiters) or skipped == MOST_UNREACHED then
        free(is_granted, key)
        redis.pcall('HDEL', waiters, 'granted') -- that of the releaser, which did not let the grant expire
        redis.pcall('PEXPIRE', waiters, COMPANION_TTL)
        return
      end
    end
    first = unless_other('ZPOPMIN', queue)
  end
  free(is_granted, key, waiters)
end

-- Record for RECORD_TTL milliseconds who released a lock, so that a copy of the request that finds another holder knows that it
-- was done. At most MOST_RECORDS releases are recorded, unless others may use the same identifier. The lock is released by then:
-- an error must neither end the script nor leave a record without expiry.
-- is_awaited: there are waiters, so save time: old records are removed by the next release without waiters.
-- is_new: keep the records for that long from now; else no longer than before.
-- is_shared: others may use the same identifier, so that each record is needed until it expires.
local function record_release(released, releaser, is_awaited, is_new, is_shared)
  local time = redis.pcall('TIME')
  local now = not time.err and time[1] * 1000 + math.floor(time[2] / 1000)
  -- If the clock was set back, the last records are in its future and would be kept instead of this one.
  local last = redis.pcall('ZRANGE', released, -1, -1, 'WITHSCORES')
  local score = now and math.max(now, (tonumber(last[2]) or 0) + 0.001)
  if not now or type(redis.pcall('ZADD', released, score, releaser)) ~= 'number' then
    return
  end
  local trimmed = 0
  if is_shared then
    redis.pcall('ZREMRANGEBYSCORE', released, -1, -1) -- the acquisition that has ended, see settle.lua
  end
  if not is_awaited or is_shared then
    trimmed = redis.pcall('ZREMRANGEBYSCORE', released, '-inf', now - RECORD_TTL)
  end
  if not is_shared then
    trimmed = redis.pcall('ZREMRANGEBYRANK', released, 0, -MOST_RECORDS - 1)
  end
  local ends = is_new and redis.pcall('PEXPIRE', released, RECORD_TTL) or 1
  if type(trimmed) ~= 'number' or type(ends) ~= 'number' then
    redis.pcall('DEL', released)
  end
end

-- Whether it is recorded that this releaser released the lock.
local function was_released(released, releaser)
  return type(redis.pcall('ZSCORE', released, releaser)) == 'string'
end
