-- acquire: take the locks of one attempt on this node and accept a token for it.
--
-- KEYS  1 the node's state, 2... the record of each lock
-- ARGV  1 version, 2 fleet, 3 nonce, 4 TTL (ms), 5 details,
--       6 waiter: "PROCESS HOLDER" to wake when the lock is free, or "",
--       7 ticket: the waiter's place in the queue, which it loses unless it asks again within 5 s,
--       8 the granted token, if a quorum of other nodes has granted the attempt, or ""
-- Reply the granted token, or else the accepted one, or {reason, ...}:
--       empty, format FORMAT, fleet FLEET, version VERSION, ended, held LEFT NONCE, ceiling
--
-- A node never accepts a token for a lock at or below one that it accepted before. The
-- uniqueness and the order of tokens depend on nothing else.
local format, version, fleet, max, floor, ceiling =
  unpack(redis.call('HMGET', KEYS[1], 'format', 'version', 'fleet', 'max', 'floor', 'ceiling'))
if not format then return {'empty'} end
if format ~= '1' then return {'format', format} end
if fleet ~= ARGV[2] then return {'fleet', fleet} end
if version ~= ARGV[1] and tonumber(version) > tonumber(ARGV[1]) then return {'version', version} end

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local nonce, granted, mine, left, holder, token = ARGV[3], tonumber(ARGV[8]), true, 0, nil, 0
local untils, fields = {}, {}
for i = 2, #KEYS do
  local owner, deadline, last, counter, released =
    unpack(redis.call('HMGET', KEYS[i], 'nonce', 'until', 'token', 'counter', 'released'))
  if released == nonce then return {'ended'} end
  if granted and granted <= tonumber(redis.call('HGET', KEYS[i], 'ended') or 0) then return {'ended'} end
  local remaining = (deadline or 0) - now
  untils[i], fields[i] = now + ARGV[4], {'nonce', nonce, 'details', ARGV[5]}
  if owner == nonce then -- a renewal may have changed its TTL and its details
    untils[i], fields[i] = math.max(untils[i], tonumber(deadline)), {}
  end
  if not owner or owner == '' or remaining <= 0 then
    mine = false
  elseif owner ~= nonce then
    mine = false
    if remaining > left then left, holder = remaining, owner end
    if ARGV[6] ~= '' then
      local queue = string.gsub(KEYS[i], ':lock:', ':waiting:', 1)
      local seen = string.gsub(KEYS[i], ':lock:', ':seen:', 1)
      redis.call('ZADD', queue, ARGV[7], ARGV[6])
      redis.call('ZADD', seen, now, ARGV[6])
      for _, gone in ipairs(redis.call('ZRANGEBYSCORE', seen, 0, now - 5000)) do redis.call('ZREM', queue, gone) end
      redis.call('ZREMRANGEBYSCORE', seen, 0, now - 5000)
      redis.call('PEXPIRE', queue, 5000)
      redis.call('PEXPIRE', seen, 5000)
      redis.call('HSET', KEYS[i], 'waiting', '1')
    end
  end
  token = math.max(token, tonumber(last or max), tonumber(counter or 0))
end
if holder then return {'held', left, holder} end
if granted then
  token = math.max(token, granted) -- this is not a vote: the counter stays, or grows to the granted token
elseif not mine then
  token = math.max(token, tonumber(floor)) + 1 -- a repeated attempt gets its token again
end
if token > tonumber(ceiling) then return {'ceiling'} end

local text = string.format('%d', token)
for i = 2, #KEYS do
  redis.call('HSET', KEYS[i], 'until', string.format('%d', untils[i]), 'token', granted and ARGV[8] or text,
    unpack(fields[i]))
  if granted then redis.call('HSET', KEYS[i], 'counter', text) end
  if ARGV[6] ~= '' then redis.call('ZREM', (string.gsub(KEYS[i], ':lock:', ':waiting:', 1)), ARGV[6]) end
end
if token > tonumber(max) then redis.call('HSET', KEYS[1], 'max', text) end
if version ~= ARGV[1] then redis.call('HSET', KEYS[1], 'version', ARGV[1]) end
return granted or token
