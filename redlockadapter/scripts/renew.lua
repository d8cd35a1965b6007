-- renew: extend a granted lease on this node.
--
-- KEYS  1 the node's state, 2... the record of each lock
-- ARGV  1 version, 2 fleet, 3 nonce, 4 TTL (ms), 5 details, 6 the granted token
-- Reply the token, or {reason, ...}:
--       empty, format FORMAT, fleet FLEET, version VERSION, ended, taken
--
-- If the lease expired on this node, or was never accepted here, the node takes it back
-- only if it has accepted no token above the lease's token since.
local format, version, fleet, max, floor, ceiling =
  unpack(redis.call('HMGET', KEYS[1], 'format', 'version', 'fleet', 'max', 'floor', 'ceiling'))
if not format then return {'empty'} end
if format ~= '1' then return {'format', format} end
if fleet ~= ARGV[2] then return {'fleet', fleet} end
if version ~= ARGV[1] and tonumber(version) > tonumber(ARGV[1]) then return {'version', version} end

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local nonce, token, tokens = ARGV[3], tonumber(ARGV[6]), {}
for i = 2, #KEYS do
  local owner, deadline, last, ended = unpack(redis.call('HMGET', KEYS[i], 'nonce', 'until', 'token', 'ended'))
  if ended == nonce then return {'ended'} end
  last = tonumber(last or max)
  local current = tonumber(deadline or 0) > now
  if owner ~= nonce or not current then
    local held = current and owner and owner ~= '' and owner ~= nonce
    if held or last > token or token <= tonumber(floor) or token > tonumber(ceiling) then return {'taken'} end
  end
  tokens[i] = string.format('%d', math.max(last, token))
end
for i = 2, #KEYS do
  redis.call('HSET', KEYS[i], 'nonce', nonce, 'until', string.format('%d', now + ARGV[4]), 'token', tokens[i], 'details', ARGV[5])
end
if token > tonumber(max) then redis.call('HSET', KEYS[1], 'max', ARGV[6]) end
if version ~= ARGV[1] then redis.call('HSET', KEYS[1], 'version', ARGV[1]) end
return token
