-- turn: forget locks that nobody has used for a while.
--
-- KEYS  the node
-- ARGV  how long an idle counter is kept (ms)
-- Answer: "ok"; or only "empty".
--
-- All locks are put aside, where they are still looked for; those that were put
-- aside the last time, and were not used since, are forgotten. Their counters fall
-- back to the largest token, so nothing goes back. A lock that is held was renewed within
-- its TTL, and no TTL is longer than locks are kept here, so it is not among them.
local call, node = redis.call, KEYS[1]
local base = string.match(node, '^.*}') or node -- what is kept beside the hash has no run in its name
local state, run, turned, ttl, believed = unpack(call('HMGET', node, 'state', 'run', 'turned', 'ttl', 'believed'))
if not string.match(state or '', '^%d+ %d+ %d+ %d+$') then return {'empty'} end
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local since = now - (tonumber(turned) or now)
if turned and since >= 0 and since < math.max(ARGV[1], ttl or 0) then return {'ok'} end
if turned and since >= 0 then
  call('UNLINK', base .. ':old')
  call('RENAME', node, base .. ':old')
  call('HDEL', base .. ':old', 'state', 'run', 'turned', 'ttl', 'join', 'since', 'believed')
  call('HSET', node, 'state', state)
  if run then call('HSET', node, 'run', run) end
  if ttl then call('HSET', node, 'ttl', ttl) end
  if believed then call('HSET', node, 'believed', believed) end
end
call('HSET', node, 'turned', string.format('%d', now))
return {'ok'}
