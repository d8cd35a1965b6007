-- renew: extend a granted lease on this node.
--
-- KEYS  1 the node's state, 2... the record of each lock
-- ARGV  1 version, 2 fleet, 3 nonce, 4 TTL (ms), 5 details, 6 the granted token
-- Reply the token, or {reason, ...}:
--       empty, format FORMAT, fleet FLEET, version VERSION, ended, taken
--
-- A renewal never shortens the time that an earlier one gave: it may be a late copy with another TTL.
-- A renewal is not a vote: the node's counter stays, or grows to the lease's token. If the lease expired
-- on this node or was never here, as after a restart, the node takes it back, unless
--   - this lease, or one with a larger token, was released or broken;
--   - another attempt holds the lock, or held it until it expired, with a larger token;
--   - the floor was raised since: the lock may have been granted in correctness mode.
local format, version, fleet, max, floor, ceiling =
  unpack(redis.call('HMGET', KEYS[1], 'format', 'version', 'fleet', 'max', 'floor', 'ceiling'))
if not format then return {'empty'} end
if format ~= '1' then return {'format', format} end
if fleet ~= ARGV[2] then return {'fleet', fleet} end
if version ~= ARGV[1] and tonumber(version) > tonumber(ARGV[1]) then return {'version', version} end

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local nonce, token, counters, untils = ARGV[3], tonumber(ARGV[6]), {}, {}
for i = 2, #KEYS do
  local owner, deadline, last, counter, released, ended =
    unpack(redis.call('HMGET', KEYS[i], 'nonce', 'until', 'token', 'counter', 'released', 'ended'))
  if released == nonce or token <= tonumber(ended or 0) then return {'ended'} end
  local current = tonumber(deadline or 0) > now
  local other = owner and owner ~= '' and owner ~= nonce
  if other and (current or tonumber(last) > token) then return {'taken'} end
  counters[i] = math.max(tonumber(last or max), tonumber(counter or 0))
  untils[i] = now + ARGV[4]
  if owner == nonce then untils[i] = math.max(untils[i], tonumber(deadline)) end
  if owner ~= nonce or not current then
    if token > tonumber(ceiling) or last and counters[i] < tonumber(floor) then return {'taken'} end
  end
end
for i = 2, #KEYS do
  redis.call('HSET', KEYS[i], 'nonce', nonce, 'until', string.format('%d', untils[i]), 'token', ARGV[6],
    'renewed', ARGV[6], 'details', ARGV[5])
  if counters[i] > token then redis.call('HSET', KEYS[i], 'counter', string.format('%d', counters[i])) end
end
if token > tonumber(max) then redis.call('HSET', KEYS[1], 'max', ARGV[6]) end
if version ~= ARGV[1] then redis.call('HSET', KEYS[1], 'version', ARGV[1]) end
return token
