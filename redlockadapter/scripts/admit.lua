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
--
-- The name of the node has the run id in it, so data that came in another way, as to
-- a replica from its master, is not there for those who were connected before: the node
-- is empty for them. Here, where a connection begins, data of an earlier run gets the new name.
local call, node = redis.call, KEYS[1]
local base = string.match(node, '^.*}') or node
local me, was = string.sub(node, #base + 2), call('GET', base .. ':run')
if was ~= me then
  local old = was and base .. ':' .. was or base -- the latter from before names had a run in them
  if call('EXISTS', node) == 1 then
    if was then call('UNLINK', old) end
  elseif call('EXISTS', old) == 1 then
    call('RENAME', old, node)
  end
  call('SET', base .. ':run', me)
end
local state, run, ttl = unpack(call('HMGET', node, 'state', 'run', 'ttl'))
if ARGV[3] and tonumber(ARGV[3]) > tonumber(ttl or '0') then call('HSET', node, 'ttl', ARGV[3]) end
local head, max, tail = string.match(state or '', '^(%d+ %d+) (%S+) (%d+)$')
local id, durable = string.match(run or '', '^(%S*) ?(%d?)$')
if id == ARGV[1] then
  if durable ~= '0' and durable ~= ARGV[2] then call('HSET', node, 'run', ARGV[1] .. ' ' .. ARGV[2]) end
  return {tonumber(max) and 'ok' or 'empty'}
end
call('HSET', node, 'run', ARGV[1] .. ' ' .. ARGV[2])
call('HDEL', node, 'join', 'since') -- they may be as old as the rest
if not head or max == '-' then return {'empty'} end
local doubted = durable == '1' and ARGV[2] == '1'
max = doubted and '?' .. string.match(max, '%d+') or '-'
call('HSET', node, 'state', head .. ' ' .. max .. ' ' .. tail)
return {doubted and 'doubted' or 'emptied'}
