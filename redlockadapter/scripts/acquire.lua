-- acquire: take the locks of one attempt on this node and accept a token for it.
--
-- KEYS  1 the node's state, 2... the record of each lock
-- ARGV  1 version, 2 fleet, 3 nonce, 4 TTL (ms), 5 details; the others may be missing:
--       6 the granted token, if a quorum of other nodes has granted the attempt, or "",
--       7 waiter: "PROCESS HOLDER" to wake when the lock is free,
--       8 ticket: the waiter's place in the queue, which it loses unless it asks again within 5 s
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
local nonce, granted, waiter = ARGV[3], tonumber(ARGV[6]), ARGV[7]
local mine, left, holder, token, kept = true, 0, nil, 0, {}
for i = 2, #KEYS do
  local owner, deadline, last, counter, released, renewed =
    unpack(redis.call('HMGET', KEYS[i], 'nonce', 'until', 'token', 'counter', 'released', 'renewed'))
  if released == nonce then return {'ended'} end
  if owner == nonce and renewed == last then granted = tonumber(last) end -- another process has found it granted
  if granted and granted <= tonumber(redis.call('HGET', KEYS[i], 'ended') or 0) then return {'ended'} end
  local remaining = (deadline or 0) - now
  if owner == nonce then kept[i] = deadline end -- a renewal may have changed its TTL and its details
  if owner ~= nonce or remaining <= 0 then mine = false end
  if owner and owner ~= '' and owner ~= nonce and remaining > 0 then
    if remaining > left then left, holder = remaining, owner end
    if waiter then
      local queue = string.gsub(KEYS[i], ':lock:', ':waiting:', 1)
      local seen = string.gsub(KEYS[i], ':lock:', ':seen:', 1)
      redis.call('ZADD', queue, ARGV[8], waiter)
      redis.call('ZADD', seen, now, waiter)
      for _, gone in ipairs(redis.call('ZRANGEBYSCORE', seen, 0, now - 5000)) do redis.call('ZREM', queue, gone) end
      redis.call('ZREMRANGEBYSCORE', seen, 0, now - 5000)
      redis.call('PEXPIRE', queue, 5000)
      redis.call('PEXPIRE', seen, 5000)
      redis.call('HSET', KEYS[i], 'waiting', '1')
    end
  end
  token = math.max(token, last or max, counter or 0)
end
if holder then return {'held', left, holder} end
if granted then
  token = math.max(token, granted) -- this is not a vote: the counter stays, or grows to the granted token
elseif not mine then
  token = math.max(token, floor) + 1 -- a repeated attempt gets its token again
end
if token > tonumber(ceiling) then return {'ceiling'} end

local text, accepted = string.format('%d', token), string.format('%d', granted or token)
for i = 2, #KEYS do
  local ends = string.format('%d', math.max(now + ARGV[4], kept[i] or 0))
  if kept[i] then
    redis.call('HSET', KEYS[i], 'until', ends, 'token', accepted)
  else
    redis.call('HSET', KEYS[i], 'until', ends, 'token', accepted, 'nonce', nonce, 'details', ARGV[5])
  end
  if granted then redis.call('HSET', KEYS[i], 'counter', text) end
  if waiter then redis.call('ZREM', (string.gsub(KEYS[i], ':lock:', ':waiting:', 1)), waiter) end
end
if token > tonumber(max) then redis.call('HSET', KEYS[1], 'max', text) end
if version ~= ARGV[1] then redis.call('HSET', KEYS[1], 'version', ARGV[1]) end
return granted or token
