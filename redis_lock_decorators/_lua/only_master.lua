-- Included before the scripts that may answer without writing.
-- End with READONLY if this server is a replica, such as a demoted master, which does not have the locks of the new one. The
-- write that shows it changes nothing. Any other refusal of it is ignored.
local function refuse_replica(key)
  local exists, write = redis.pcall('EXISTS', key)
  if exists == 1 then
    write = {'SET', key, '', 'NX', 'PX', 1}
  elseif exists == 0 then
    write = {'PEXPIRE', key, 1}
  else
    return
  end
  local reply = redis.pcall(unpack(write))
  if type(reply) == 'table' and reply.err and string.find(reply.err, 'READONLY', 1, true) then
    redis.call(unpack(write))
  end
end

