-- admit: notice on a new connection that the server has been restarted.
--
-- KEYS  the node
-- ARGV  the run id of the server, "1" if a restart loses nothing that was answered
--       (as the server is set now), the longest TTL that the caller may ask for (ms)
-- Answer: "ok", "empty", or, if that is seen now, "emptied" or "doubted".
--
-- A server that comes back with a snapshot, or with an append-only file that
-- lacks the last second, has counters that went back and looks healthy. It is
-- treated like one that has lost everything. What counts is how the server was set
-- in the run that answered, so that is kept beside its run id: "1" if everyone who
-- connected found that a restart would lose nothing. The run that comes back must
-- say so too: it may be a promoted replica. Even then it is only its word, and
-- what it says may be of an old data folder; so it is doubted, and does not vote
-- until a majority has told it how far tokens have come. The longest TTL of all who ever
-- connected is kept: an emptied node may not come back before that has passed.
local state, run, ttl = unpack(redis.call('HMGET', KEYS[1], 'state', 'run', 'ttl'))
if ARGV[3] and tonumber(ARGV[3]) > tonumber(ttl or '0') then redis.call('HSET', KEYS[1], 'ttl', ARGV[3]) end
local head, max, tail = string.match(state or '', '^(%d+ %d+) (%S+) (%d+)$')
local id, durable = string.match(run or '', '^(%S*) ?(%d?)$')
if id == ARGV[1] then
  if durable ~= '0' and durable ~= ARGV[2] then redis.call('HSET', KEYS[1], 'run', ARGV[1] .. ' ' .. ARGV[2]) end
  return {tonumber(max) and 'ok' or 'empty'}
end
redis.call('HSET', KEYS[1], 'run', ARGV[1] .. ' ' .. ARGV[2])
redis.call('HDEL', KEYS[1], 'join', 'since') -- they may be as old as the rest
if not head or max == '-' then return {'empty'} end
local doubted = durable == '1' and ARGV[2] == '1'
max = doubted and '?' .. string.match(max, '%d+') or '-'
redis.call('HSET', KEYS[1], 'state', head .. ' ' .. max .. ' ' .. tail)
return {doubted and 'doubted' or 'emptied'}
