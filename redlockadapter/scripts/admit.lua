-- admit: notice on a new connection that the server has been restarted.
--
-- KEYS  max, run
-- ARGV  the run id of the server, "1" if a restart loses nothing that was answered
-- Answer: "ok", "empty", or "emptied" if the node was made empty.
--
-- A server that comes back with a snapshot, or with an append-only file that
-- lacks the last second, has counters that went back and looks healthy. It is
-- treated like one that has lost everything.
local seen = redis.call('MGET', unpack(KEYS))
if not seen[1] then return {'empty'} end
if seen[2] == ARGV[1] then return {'ok'} end
if ARGV[2] ~= '1' then
  redis.call('DEL', KEYS[1])
  return {'emptied'}
end
redis.call('SET', KEYS[2], ARGV[1])
return {'ok'}
