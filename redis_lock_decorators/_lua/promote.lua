-- Not a script by itself: what stands before those that may hand a lock on. KEPT is how long what is noted of waiters
-- is kept, NOTED how long it is noted who released a lock, in milliseconds; MOST_NOTED: of how many releases.
-- In the queue a waiter is "channel|identifier|grant in milliseconds", by its ticket; who was handed the lock last is
-- noted so too, until it says that it entered or lets the lock go. Words on a channel, where anybody may speak and hear:
--   turn|hint|proof  the waiter was handed the lock. The hint names its place and is no secret; the proof is made of
--                    what only this very process of the server, those who may ask it INFO, and the waiter know.
--   again|hint       the waiter is to line up again. It proves nothing, and costs no more than a request.

-- So many places are passed over in one call: the server has others to serve.
local MOST = 300
-- And so many where nobody is found who would go on at once.
local MOST_UNTOLD = 10 * MOST

-- The channel, the identifier and the grant of a place, a hundred seconds at most. Nothing for what is no place: somebody
-- may have written it by hand.
local function parts(place)
  local channel, identifier, grant = string.match(place, '^([^|]+)|([^|]+)|([1-9]%d*)$')
  if channel and #grant < 6 then
    return channel, identifier, grant
  end
end

-- What a key holds, as GET tells; 0 for other data.
local function value(key)
  local found = redis.pcall('GET', key)
  if type(found) ~= 'table' then
    return found
  end
  return string.find(found.err, 'WRONGTYPE', 1, true) and 0 or redis.call('GET', key)
end

-- The reply to a command; nil where other data lie in the key: they keep no lock from being let go.
local function unless_other(...)
  local found = redis.pcall(...)
  if type(found) ~= 'table' or not found.err then
    return found
  end
  return not string.find(found.err, 'WRONGTYPE', 1, true) and redis.call(...) or nil
end

-- Listeners of the channel at this server, patterns not counted; nil if that may not be asked.
local function hearers(channel)
  local found = redis.pcall('PUBSUB', 'NUMSUB', channel)
  return not found.err and found[2] or nil
end

local function proof(identifier, key)
  local info = redis.pcall('INFO', 'server')
  local run_id = type(info) == 'string' and string.match(info, 'run_id:(%x+)')
  return run_id and redis.sha1hex(run_id .. '|' .. identifier .. '|' .. key) or ''
end

-- Whether anybody may have heard it.
local function say(channel, word)
  local heard = redis.pcall('PUBLISH', channel, word)
  return type(heard) == 'number' and heard > 0
end

local function say_again(channel, identifier)
  return say(channel, 'again|' .. redis.sha1hex(identifier))
end

-- Have one of these waiters, the first whose process listens, line up again. Whether there is one.
local function stir(places) -- none, if an error came in their place
  for _, place in ipairs(places) do
    local channel, identifier = parts(place)
    if channel and hearers(channel) ~= 0 and say_again(channel, identifier) then
      return true
    end
  end
  return false
end

-- The same from the end of a queue, where those stand who came last: most likely they are alive.
local function stir_last(queue, facts)
  local last, places = redis.pcall('ZRANGE', queue, -100, -1), {}
  for i = #last, 1, -1 do
    if redis.pcall('HEXISTS', facts, 'suspect:' .. (parts(last[i]) or '')) == 0 then
      places[#places + 1] = last[i]
    end
  end
  return stir(places)
end

-- Delete a lock, and what is noted of it. If it was given to somebody who did not hear of it, it ends by itself else.
local function free(is_given, ...)
  if is_given then
    redis.pcall('DEL', ...)
  else
    redis.call('DEL', ...)
  end
end

-- Give a lock that nobody holds any more to the first waiter whose process listens; if there is none, free it.
-- Where very many of the dead stand before that one it is free meanwhile, and whoever asks for it next goes on: one of
-- the waiters is told to, the others look for it from time to time.
-- Releaser: the identifier that lets the lock go, nil if it lapsed.
-- Alive: the channel of who asks, whose process is no suspect whatever it let lapse.
-- What is refused may end this before the lock is given away, and nothing may afterwards. A queue that is none is empty.
local function promote(key, queue, facts, releaser, alive)
  local granted = unless_other('HGET', facts, 'granted')
  if granted then
    local channel, identifier = parts(granted)
    if not channel or identifier ~= releaser then
      redis.call('HDEL', facts, 'granted')
      if channel and channel ~= alive then -- nobody entered: until its process asks again, none there is handed the lock
        redis.pcall('HSET', facts, 'suspect:' .. channel, 1)
        redis.pcall('PEXPIRE', facts, KEPT) -- now, for what follows may be refused
      end
    end
  end
  local heard, unheard, passed, is_given = {}, 0, 0, false
  local first = unless_other('ZPOPMIN', queue) or {}
  while #first > 0 do
    local channel, identifier, grant = parts(first[1])
    if channel then
      heard[channel] = heard[channel] or hearers(channel) or 1
    end
    if channel and heard[channel] == 0 then
      -- It is dead, or listens at a server from which the lock has moved, and may be told from here all the same.
      unheard = unheard + 1
      if unheard <= 100 then
        say_again(channel, identifier)
      end
    elseif channel and redis.pcall('HEXISTS', facts, 'suspect:' .. channel) == 1 then
      say_again(channel, identifier)
    elseif channel then
      -- First the key, then the word. Where memory is used up, waiters come back by their own timers.
      if redis.pcall('SET', key, identifier, 'PX', grant).err then
        break
      end
      is_given = true
      if say(channel, 'turn|' .. redis.sha1hex(identifier) .. '|' .. proof(identifier, key)) then
        redis.pcall('HSET', facts, 'granted', first[1])
        redis.pcall('PEXPIRE', facts, KEPT)
        return
      end
      heard[channel] = 0
    end
    passed = passed + 1
    if (passed == MOST or passed == MOST_UNTOLD) and redis.pcall('EXISTS', queue) == 1 then
      if stir_last(queue, facts) or passed == MOST_UNTOLD then
        free(is_given, key)
        redis.pcall('HDEL', facts, 'granted') -- of who lets the lock go: it is nobody's now, and let nothing lapse
        redis.pcall('PEXPIRE', facts, KEPT)
        return
      end
    end
    first = unless_other('ZPOPMIN', queue)
  end
  free(is_given, key, facts)
end

-- Note who released a lock, for NOTED milliseconds, so that a copy of the request which finds another holder knows that
-- it was done. Only the last MOST_NOTED releases are noted. The lock is released by then: nothing that is refused may
-- end the script, nor leave notes that never end.
-- Is_awaited: others wait, so that time counts: what is too old is taken out by the next release that nobody waits for.
-- Is_new: the notes are to stay for that long from now; else no longer than they would.
local function note_release(released, releaser, is_awaited, is_new)
  local time = redis.pcall('TIME')
  local now = not time.err and time[1] * 1000 + math.floor(time[2] / 1000)
  -- Where the clock was set back the last notes are ahead of it, and would be kept instead of this one.
  local last = redis.pcall('ZRANGE', released, -1, -1, 'WITHSCORES')
  local score = now and math.max(now, (tonumber(last[2]) or 0) + 0.001)
  if not now or type(redis.pcall('ZADD', released, score, releaser)) ~= 'number' then
    return
  end
  if not is_awaited then
    redis.pcall('ZREMRANGEBYSCORE', released, '-inf', now - NOTED)
  end
  local trimmed = redis.pcall('ZREMRANGEBYRANK', released, 0, -MOST_NOTED - 1)
  local ends = is_new and redis.pcall('PEXPIRE', released, NOTED) or 1
  if type(trimmed) ~= 'number' or type(ends) ~= 'number' then
    redis.pcall('DEL', released)
  end
end

-- Whether it is noted that this releaser released the lock.
local function was_released(released, releaser)
  return type(redis.pcall('ZSCORE', released, releaser)) == 'string'
end
