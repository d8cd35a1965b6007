-- init: make a node a voter, with a range of tokens that it cannot have accepted before.
--
-- KEYS  1 the node's state, 2 the latest life that was initialised
-- ARGV  1 join nonce, 2 version, 3 fleet, 4 member, 5 floor, 6 ceiling, 7 quarantine (ms),
--       8 the fleet that replaces this one, or ""
-- Reply ok, join (the node has another join nonce), format (its state, or that of its former life, has another format), or
--       {"wait", MILLISECONDS} while the quarantine lasts
--
-- The join nonce proves that the node was neither lost nor initialised since the range was assigned. The node also
-- starts above every floor that was reserved on it for another node, see reserve.lua. The state of the former life is
-- removed: should a connection from that life still be open, it finds an empty node. A voter that was joined again keeps
-- its version if that is larger: it refuses what it has refused before.
local format, join, since, version = unpack(redis.call('HMGET', KEYS[1], 'format', 'join', 'since', 'version'))
if format and format ~= '1' then return 'format' end
if join ~= ARGV[1] then return 'join' end
local time = redis.call('TIME')
local passed = time[1] * 1000 + math.floor(time[2] / 1000) - since
if passed < 0 then -- the clock was set back: restart the quarantine
  redis.call('HSET', KEYS[1], 'since', string.format('%d', since + passed))
  passed = 0
end
if passed < tonumber(ARGV[7]) then return {'wait', ARGV[7] - passed} end
local former = string.sub(KEYS[2], 1, -5) .. (redis.call('GET', KEYS[2]) or '') .. ':node'
local floor, formerFormat, reserved = ARGV[5], unpack(redis.call('HMGET', former, 'format', 'floor'))
if formerFormat and formerFormat ~= '1' then return 'format' end
if reserved and tonumber(reserved) > tonumber(floor) then floor = reserved end
if not version or tonumber(version) < tonumber(ARGV[2]) then version = ARGV[2] end
redis.call('DEL', former, KEYS[1])
redis.call('HSET', KEYS[1], 'format', '1', 'version', version, 'fleet', ARGV[3], 'member', ARGV[4],
  'max', floor, 'floor', floor, 'ceiling', ARGV[6], 'initialised', join)
if ARGV[8] ~= '' then redis.call('HSET', KEYS[1], 'successor', ARGV[8]) end
redis.call('SET', KEYS[2], string.match(KEYS[1], ':(%x+):node$'))
return 'ok'
