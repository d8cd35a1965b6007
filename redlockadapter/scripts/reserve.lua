-- reserve: have this node remember a floor that another node is about to start from.
--
-- KEYS  1 the node's state, 2 the name of the latest life that was initialised
-- ARGV  1 fleet, 2 floor
-- Reply ok, fleet, or empty (it has nothing to remember it by)
--
-- Without it a node that is lost twice could start from the same floor twice: nobody else knows of the tokens
-- that it accepted in between. A voter raises its own floor; an empty node notes the floor beside what its former
-- life left, and starts above it.
local state = KEYS[1]
if redis.call('HEXISTS', state, 'version') == 0 then
  state = string.sub(KEYS[2], 1, -5) .. (redis.call('GET', KEYS[2]) or '') .. ':node'
end
local fleet, max, floor = unpack(redis.call('HMGET', state, 'fleet', 'max', 'floor'))
if not fleet then return 'empty' end
if fleet ~= ARGV[1] then return 'fleet' end
local function larger(a, b) return tonumber(a) > tonumber(b) and a or b end
redis.call('HSET', state, 'floor', larger(floor, ARGV[2]), 'max', larger(max, ARGV[2]))
return 'ok'
