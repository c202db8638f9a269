-- Included before release.lua: the usual release of one lock, done before the functions in between are created, which takes
-- as long as all the rest. It does what release.lua does for a lock that has no waiters and had none a moment ago.
if #KEYS == 4 and not ARGV[4] and redis.pcall('GET', KEYS[1]) == ARGV[1] and redis.call('EXISTS', KEYS[2], KEYS[4]) == 0 then
  redis.call('DEL', KEYS[1], KEYS[3])
  return ARGV[1] .. ':' .. ARGV[2]
end
