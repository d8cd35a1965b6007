-- report: return the state of this node.
--
-- KEYS  1 the node's state, 2 the latest life that was initialised
-- ARGV  1 the prefix of all keys
-- Reply {time (ms), life, format, version, fleet, member, max, floor, ceiling, join nonce that initialised the node,
--       successor of the fleet, join nonce, time since the quarantine began (ms), time since the last join (ms), former life, its format, version, fleet, member,
--       max, floor, ceiling, join nonce and successor}; "" for each missing value
--
-- The state of a former life is a lower bound of the granted tokens, never a vote: it may be old.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local reply = {string.format('%d', now), string.match(KEYS[1], ':(%x+):node$')}
local function add(key)
  local fields = redis.call('HMGET', key, 'format', 'version', 'fleet', 'member', 'max', 'floor', 'ceiling',
    'initialised', 'successor')
  for i = 1, 9 do reply[#reply + 1] = fields[i] or '' end
end
add(KEYS[1])
local join, since, joined = unpack(redis.call('HMGET', KEYS[1], 'join', 'since', 'joined'))
reply[#reply + 1] = join or ''
reply[#reply + 1] = since and string.format('%d', now - since) or ''
reply[#reply + 1] = joined and string.format('%d', now - joined) or ''
local former = redis.call('GET', KEYS[2]) or ''
if former ~= reply[2] then
  reply[#reply + 1] = former
  add(ARGV[1] .. former .. ':node')
end
return reply
