-- report: return the state of this node.
--
-- KEYS  1 the node's state, 2 the latest life that was initialised
-- ARGV  1 the prefix of all keys
-- Reply {time (ms), format, version, fleet, member, max, floor, ceiling, join nonce, age of the first join (ms),
--       format, version, fleet, max, floor and ceiling of the former life}; "" for each missing value
--
-- The state of a former life is a lower bound of the granted tokens, never a vote: it may be old.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local reply = {string.format('%d', now)}
local fields = redis.call('HMGET', KEYS[1], 'format', 'version', 'fleet', 'member', 'max', 'floor',
  'ceiling', 'join', 'since')
for i = 1, 8 do reply[#reply + 1] = fields[i] or '' end
reply[#reply + 1] = fields[9] and string.format('%d', now - fields[9]) or ''
local former = ARGV[1] .. (redis.call('GET', KEYS[2]) or '') .. ':node'
if former ~= KEYS[1] then
  fields = redis.call('HMGET', former, 'format', 'version', 'fleet', 'max', 'floor', 'ceiling')
  for i = 1, 6 do reply[#reply + 1] = fields[i] or '' end
end
return reply
