-- inspect: return the record of one lock.
--
-- KEYS  1 the node's state, 2 the record of the lock
-- ARGV  1 version
-- Reply {empty}, {format, FORMAT}, {version, VERSION}, or
--       {nonce, time left (ms, 0 if free), token, token of the lease that was renewed last, largest token whose lease has
--       ended, details, nonce that was released last, its cause, waiter, ticket, waiter, ticket...}; a missing token is 0
--
-- Under a newer version than the caller's, the lock may be in correctness mode, and its record here says nothing.
local format, version = unpack(redis.call('HMGET', KEYS[1], 'format', 'version'))
if not format then return {'empty'} end
if format ~= '1' then return {'format', format} end
if tonumber(version) > tonumber(ARGV[1]) then return {'version', version} end
local owner, deadline, token, details, released, broken, renewed, ended = unpack(redis.call('HMGET', KEYS[2],
  'nonce', 'until', 'token', 'details', 'released', 'broken', 'renewed', 'ended'))
local time = redis.call('TIME')
local left = (deadline or 0) - (time[1] * 1000 + math.floor(time[2] / 1000))
if not owner or owner == '' or left < 0 then left = 0 end
local cause = released and released == broken and 'broken' or 'released'
local reply = {owner or '', string.format('%d', left), token or '0', renewed or '0', ended or '0', details or '',
  released or '', cause}
for _, field in ipairs(redis.call('ZRANGE', (string.gsub(KEYS[2], ':lock:', ':waiting:', 1)), 0, -1, 'WITHSCORES')) do
  reply[#reply + 1] = field
end
return reply
