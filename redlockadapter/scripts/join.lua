-- join: put a join nonce on a node that is to get a fresh range of tokens, or repeat it.
--
-- KEYS  1 the node's state
-- ARGV  1 join nonce, 2 version, 3 fleet, 4 minimum age (ms) of a join nonce that may be replaced,
--       5 "1" if the node may vote in this fleet: the Raft log does not name its life,
--       6 time (ms) without a join after which the quarantine starts again
-- Reply {ok, time (ms) of its quarantine that has passed}, format (its state has another format), state (the node votes
--       in this fleet), version (the node has seen a newer version), or joining (there is a younger join nonce)
--
-- From now on an init with another join nonce is refused. The quarantine counts while joins arrive: if they stop for
-- so long, the address of the node may have led to another server, which may have voted.
local format, version, fleet, join, joined, since =
  unpack(redis.call('HMGET', KEYS[1], 'format', 'version', 'fleet', 'join', 'joined', 'since'))
if format and format ~= '1' then return 'format' end
if version and fleet == ARGV[3] and ARGV[5] ~= '1' then return 'state' end
if version and tonumber(version) > tonumber(ARGV[2]) then return 'version' end
local time = redis.call('TIME')
local now = string.format('%d', time[1] * 1000 + math.floor(time[2] / 1000))
local idle = now - (joined or now) -- below 0, the clock was set back
if join and join ~= ARGV[1] and idle >= 0 and idle < tonumber(ARGV[4]) then return 'joining' end
if not since or idle < 0 or idle >= tonumber(ARGV[6]) then since = now end
redis.call('HSET', KEYS[1], 'join', ARGV[1], 'joined', now, 'since', since)
return {'ok', string.format('%d', now - since)}
