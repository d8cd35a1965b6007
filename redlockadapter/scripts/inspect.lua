-- inspect: what this node knows of a lock.
--
-- KEYS  the node
-- ARGV  the lock
-- Answer: the counter (nothing if there is none), and if the lock is held, with spaces
--       between, the time it has left (ms) and its body; or only "empty".
local call, node = redis.call, KEYS[1]
local state, lock = unpack(call('HMGET', node, 'state', ARGV[1]))
if not string.match(state or '', '^%d+ %d+ %d+ %d+$') then return 'empty' end
lock = lock or call('HGET', node .. ':old', ARGV[1])
local counter, deadline, body = string.match(lock or '', '^!?(%d+) ?(%d*) ?(.*)$')
if not counter then return '' end
local time = call('TIME')
local left = (tonumber(deadline) or 0) - time[1] * 1000 - math.floor(time[2] / 1000)
if left <= 0 then return counter end
return counter .. ' ' .. left .. ' ' .. body
