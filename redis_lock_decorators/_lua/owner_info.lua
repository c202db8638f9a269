-- Wrapped around the script of a verb: runs it, then brings the information about the holder in line with each lock key. It
-- is stored next to the key that holds its identifier, as long as that key does. Sent twice or late, this changes no more
-- than the verb does. The verb is done before, so no error may end this.
-- KEYS  those of the verb, then the companion keys for the information about the holders
-- ARGV  those of the verb, then for each companion key: the number of its lock key from 1, the identifier ('': the first
--       argument), the information as the rest of a JSON object ('*' before it if the verb returns a fence to be added, ''
--       to store none); then the number of companion keys
-- reply that of the verb; or {how many companions are up to date, the reply of the verb, information about another client
--       that holds a key or ''} if there is such information, or if any could not be stored
local function attach(verb)
  local infos = {}
  for i = tonumber(table.remove(ARGV)), 1, -1 do
    local text, identifier, number = table.remove(ARGV), table.remove(ARGV), tonumber(table.remove(ARGV))
    infos[i] = {table.remove(KEYS), KEYS[number], identifier == '' and ARGV[1] or identifier, text}
  end
  local serial = tonumber(ARGV[2])
  local reply, other, stored, wanted = verb(), '', 0, 0
  if type(reply) == 'table' and reply.err then -- nested in another reply it would be no error
    return reply
  end
  for _, info in ipairs(infos) do
    local companion, key, identifier, text = unpack(info)
    local holder, found = redis.pcall('GET', key), redis.pcall('GET', companion)
    local of, number, rest = string.match(type(found) == 'string' and found or '', '^{"of":"(%x+)","n":(%d+),(.+)$')
    local own = redis.sha1hex(identifier)
    wanted = wanted + (text ~= '' and 1 or 0)
    if holder == identifier and text ~= '' then
      if string.sub(text, 1, 1) == '*' then
        local fence = type(reply) == 'table' and tonumber(reply[2])
        text = (fence and string.format('"fence":%.0f,', fence) or '') .. string.sub(text, 2)
      end
      local left = redis.pcall('PTTL', key)
      left = type(left) == 'number' and left >= 0 and math.max(left, 1) or 60000 -- never without an end
      local written
      -- A late copy of an earlier request must not restore what was replaced since.
      if of == own and (rest == text or tonumber(number) > serial) then
        written = redis.pcall('PEXPIRE', companion, left)
      else
        text = string.format('{"of":"%s","n":%.0f,', own, serial) .. text
        written = redis.pcall('SET', companion, text, 'PX', left)
      end
      stored = stored + ((type(written) ~= 'table' or not written.err) and 1 or 0)
    elseif of == own and holder ~= identifier then
      redis.pcall('DEL', companion)
    elseif of and type(holder) == 'string' and of == redis.sha1hex(holder) then
      other = other == '' and found or other
    end
  end
  if other == '' and stored == wanted then
    return reply
  end
  return {stored, reply, other}
end
