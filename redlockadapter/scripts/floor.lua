-- floor: let this node accept nothing that is not above a token.
--
-- KEYS  the node
-- ARGV  the token
-- Answer: "ok"; or only "empty".
--
-- The largest token ever accepted is raised too: it is what an emptied node is
-- told when it comes back, and the floor must not be forgotten with this one.
local state = redis.call('HGET', KEYS[1], 'state') or ''
local epoch, floor, max, tombs = string.match(state, '^(%d+) (%d+) (%d+) (%d+)$')
if not max then return {'empty'} end
local token = tonumber(ARGV[1])
if tonumber(max) < token then max = ARGV[1] end
if tonumber(floor) < token then floor = ARGV[1] end
redis.call('HSET', KEYS[1], 'state', table.concat({epoch, floor, max, tombs}, ' '))
return {'ok'}
