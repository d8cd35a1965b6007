-- raise: accept a larger token for an attempt that holds its locks on this node.
--
-- KEYS  1 the node's state, 2... the record of each lock
-- ARGV  1 version, 2 fleet, 3 nonce, 4 token
-- Reply the token, or {reason, ...}:
--       empty, format FORMAT, fleet FLEET, version VERSION, ceiling, lost
local format, version, fleet, max, ceiling =
  unpack(redis.call('HMGET', KEYS[1], 'format', 'version', 'fleet', 'max', 'ceiling'))
if not format then return {'empty'} end
if format ~= '1' then return {'format', format} end
if fleet ~= ARGV[2] then return {'fleet', fleet} end
if version ~= ARGV[1] and tonumber(version) > tonumber(ARGV[1]) then return {'version', version} end
local token = tonumber(ARGV[4])
if token > tonumber(ceiling) then return {'ceiling'} end

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
for i = 2, #KEYS do
  local owner, deadline, last, counter, renewed =
    unpack(redis.call('HMGET', KEYS[i], 'nonce', 'until', 'token', 'counter', 'renewed'))
  if owner ~= ARGV[3] or tonumber(deadline) <= now then return {'lost'} end
  if math.max(tonumber(last), tonumber(counter or 0)) > token then return {'lost'} end
  if renewed == last and tonumber(last) < token then return {'lost'} end -- another process has found it granted
end
for i = 2, #KEYS do redis.call('HSET', KEYS[i], 'token', ARGV[4]) end
if token > tonumber(max) then redis.call('HSET', KEYS[1], 'max', ARGV[4]) end
if version ~= ARGV[1] then redis.call('HSET', KEYS[1], 'version', ARGV[1]) end
return token
