-- reserve: store a floor that another node is about to start from.
--
-- KEYS  1 the node's state, 2 the latest life that was initialised
-- ARGV  1 fleet, 2 floor, 3 version with which a node without any state stores the floor, or ""
-- Reply ok, format, fleet, or empty (the node has no state, in this life or the former one)
--
-- Without it a node that is lost twice could start from the same floor twice, since no other node knows the tokens
-- that it accepted in between. A voter raises its own floor. An empty node raises the floor in the state of its
-- former life, and later starts above it.
local state = KEYS[1]
if redis.call('HEXISTS', state, 'format') == 0 then
  state = string.sub(KEYS[2], 1, -5) .. (redis.call('GET', KEYS[2]) or '') .. ':node'
end
local format, fleet, max, floor = unpack(redis.call('HMGET', state, 'format', 'fleet', 'max', 'floor'))
if not format and ARGV[3] ~= '' then -- an operator vouches for the floor: keep it as the state of a former life, "0"
  redis.call('SET', KEYS[2], '0')
  redis.call('HSET', string.sub(KEYS[2], 1, -5) .. '0:node', 'format', '1', 'version', ARGV[3], 'fleet', ARGV[1],
    'max', ARGV[2], 'floor', ARGV[2], 'ceiling', '9007199254740991')
  return 'ok'
end
if not format then return 'empty' end
if format ~= '1' then return 'format' end
if fleet ~= ARGV[1] then return 'fleet' end
local function larger(a, b) return tonumber(a) > tonumber(b) and a or b end
redis.call('HSET', state, 'floor', larger(floor, ARGV[2]), 'max', larger(max, ARGV[2]))
return 'ok'
