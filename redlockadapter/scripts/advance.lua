-- advance: raise the version, the floor and the ceiling of a node. Nothing is ever lowered.
--
-- KEYS  1 the node's state
-- ARGV  1 version, 2 fleet, 3 floor, 4 ceiling, 5 the fleet that replaces this one, or ""
-- Reply ok, empty, format, or fleet
--
-- After that, no acquire, raise or renewal with an older version succeeds on this node.
local format, version, fleet, max, floor, ceiling =
  unpack(redis.call('HMGET', KEYS[1], 'format', 'version', 'fleet', 'max', 'floor', 'ceiling'))
if not format then return 'empty' end
if format ~= '1' then return 'format' end
if fleet ~= ARGV[2] then return 'fleet' end
local function larger(a, b) return tonumber(a) > tonumber(b) and a or b end
redis.call('HSET', KEYS[1], 'version', larger(version, ARGV[1]), 'floor', larger(floor, ARGV[3]),
  'max', larger(max, ARGV[3]), 'ceiling', larger(ceiling, ARGV[4]))
if tonumber(ARGV[1]) >= tonumber(version) then redis.call('HSET', KEYS[1], 'successor', ARGV[5]) end
return 'ok'
