-- admit: notice on a new connection that the server has been restarted.
--
-- KEYS  the node
-- ARGV  the run id of the server, "1" if a restart loses nothing that was answered,
--       the longest TTL that the caller may ask for (ms)
-- Answer: "ok", "empty", or "emptied" if the node was made empty.
--
-- A server that comes back with a snapshot, or with an append-only file that
-- lacks the last second, has counters that went back and looks healthy. It is
-- treated like one that has lost everything. The longest TTL of all who ever
-- connected is kept: an emptied node may not come back before that has passed.
local state, run, ttl = unpack(redis.call('HMGET', KEYS[1], 'state', 'run', 'ttl'))
if ARGV[3] and tonumber(ARGV[3]) > tonumber(ttl or '0') then redis.call('HSET', KEYS[1], 'ttl', ARGV[3]) end
local head, tail = string.match(state or '', '^(%d+ %d+) %d+ (%d+)$')
if not head then return {'empty'} end
if run == ARGV[1] then return {'ok'} end
if ARGV[2] ~= '1' then
  redis.call('HSET', KEYS[1], 'state', head .. ' - ' .. tail)
  return {'emptied'}
end
redis.call('HSET', KEYS[1], 'run', ARGV[1])
return {'ok'}
