-- admit: notice on a new connection that the server has been restarted.
--
-- KEYS  the node
-- ARGV  the run id of the server, "1" if a restart loses nothing that was answered
--       (as the server is set now), the longest TTL that the caller may ask for (ms)
-- Answer: "ok", "empty", or "emptied" if the node was made empty.
--
-- A server that comes back with a snapshot, or with an append-only file that
-- lacks the last second, has counters that went back and looks healthy. It is
-- treated like one that has lost everything. What counts is how the server was set
-- in the run that answered, so that is kept beside its run id: "1" if everyone who
-- connected found that a restart would lose nothing. The run that comes back must
-- say so too: it may be a promoted replica. The longest TTL of all who ever
-- connected is kept: an emptied node may not come back before that has passed.
local state, run, ttl = unpack(redis.call('HMGET', KEYS[1], 'state', 'run', 'ttl'))
if ARGV[3] and tonumber(ARGV[3]) > tonumber(ttl or '0') then redis.call('HSET', KEYS[1], 'ttl', ARGV[3]) end
local head, tail = string.match(state or '', '^(%d+ %d+) %d+ (%d+)$')
if not head then return {'empty'} end
local id, durable = string.match(run or '', '^(%S*) ?(%d?)$')
if id ~= ARGV[1] and (durable ~= '1' or ARGV[2] ~= '1') then
  redis.call('HSET', KEYS[1], 'state', head .. ' - ' .. tail)
  return {'emptied'}
end
if durable ~= '0' and durable ~= ARGV[2] or id ~= ARGV[1] then
  redis.call('HSET', KEYS[1], 'run', ARGV[1] .. ' ' .. ARGV[2])
end
return {'ok'}
