-- join: put a join nonce on a node that is to get a fresh range of tokens.
--
-- KEYS  1 the node's state
-- ARGV  1 join nonce, 2 version, 3 fleet, 4 minimum age (ms) of a join nonce that may be replaced,
--       5 "1" if the node may vote in this fleet: the Raft log does not name its life
-- Reply ok, format (its state has another format), state (the node votes in this fleet), version (the node has seen a newer version), or
--       joining (there is a younger join nonce)
--
-- From now on an init with another join nonce is refused. The quarantine of the node starts with its first join.
local format, version, fleet, join, joined =
  unpack(redis.call('HMGET', KEYS[1], 'format', 'version', 'fleet', 'join', 'joined'))
if format and format ~= '1' then return 'format' end
if version and fleet == ARGV[3] and ARGV[5] ~= '1' then return 'state' end
if version and tonumber(version) > tonumber(ARGV[2]) then return 'version' end
local time = redis.call('TIME')
local now = string.format('%d', time[1] * 1000 + math.floor(time[2] / 1000))
if join and join ~= ARGV[1] and now - joined < tonumber(ARGV[4]) then return 'joining' end
redis.call('HSET', KEYS[1], 'join', ARGV[1], 'joined', now)
redis.call('HSETNX', KEYS[1], 'since', now)
return 'ok'
