-- Give a lock that was just acquired its final form: its final identifier, and no expiry if it is to have none.
-- A late copy of the request finds another identifier. Or, if a late copy of the acquisition restored the first one, it
-- finds a later end than the lock had when it was acquired. If a late copy restored its place in the queue, the end may be
-- earlier: then the record of its release shows that this is a late copy, too. It changes nothing then.
-- If others may use the final identifier too, the record of releases also says which acquisition got it last, as a member "by:"
-- with the score -1, for as long as the lock may be held.
-- If the lock was granted in a queue, this also clears the note of the grant, which names the first identifier.
-- KEYS  the lock key; after waiting in the queue, also its queue and its waiters' state; if others may use the final
--       identifier, also its record of releases
-- ARGV  identifier, serial number of the request, final identifier, 1 to remove the expiry (else 0), the latest end that
--       the lock has (Unix milliseconds); the time to live of the record, in milliseconds. Without a record: 'first' if no
--       request before this one can have set the final identifier, so that another one has if it is found
-- reply "identifier:serial" when done; {"identifier:serial", identifier, its end} if it ends later;
--       else {"identifier:serial", identifier found or ''}
local mark = ARGV[1] .. ':' .. ARGV[2]
local holder = redis.call('GET', KEYS[1])
local own = 'by:' .. ARGV[1]
local function is_recorded(record)
  return type(redis.pcall('ZSCORE', KEYS[4], record)) == 'string'
end
if KEYS[4] and is_recorded(ARGV[1]) then
  refuse_replica(KEYS[1])
  return {mark, holder or ''}
elseif holder == ARGV[3] and holder ~= ARGV[1] and (KEYS[4] and is_recorded(own) or not KEYS[4] and ARGV[6] ~= 'first') then
  refuse_replica(KEYS[1])
  return mark
elseif holder ~= ARGV[1] then
  refuse_replica(KEYS[1])
  return {mark, holder or ''}
end
local found = ends_at(KEYS[1])
if found > tonumber(ARGV[5]) then
  refuse_replica(KEYS[1])
  return {mark, holder, found}
end
local granted = KEYS[3] and redis.pcall('HGET', KEYS[3], 'granted')
if type(granted) == 'string' and string.match(granted, '|([^|]+)|') == holder then
  redis.pcall('HDEL', KEYS[3], 'granted') -- without the right to call it, the note expires
end
if KEYS[4] then
  redis.pcall('ZREMRANGEBYSCORE', KEYS[4], -1, -1)
  local recorded = redis.pcall('ZADD', KEYS[4], -1, own)
  if type(recorded) == 'table' and string.find(recorded.err, 'non local key') then
    return recorded -- the slot is moving, and the record would be created at the other node
  end
  redis.pcall('PEXPIRE', KEYS[4], ARGV[6])
end
if ARGV[4] == '1' or found == -1 then
  redis.call('SET', KEYS[1], ARGV[3])
elseif ARGV[3] ~= holder then
  redis.call('SET', KEYS[1], ARGV[3], 'PX', math.max(1, redis.call('PTTL', KEYS[1])))
else
  refuse_replica(KEYS[1])
end
return mark
