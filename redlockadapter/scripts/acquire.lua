-- acquire: take the locks of one attempt on this node and accept a token for it.
--
-- KEYS  1 the node's state, 2... the record of each lock
-- ARGV  1 version, 2 fleet, 3 nonce, 4 TTL (ms), 5 details,
--       6 waiter: "PROCESS HOLDER" to wake when the lock is free, or "",
--       7 ticket: the waiter's place in the queue
-- Reply the accepted token, or {reason, ...}:
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
local nonce, mine, left, holder, token = ARGV[3], true, 0, nil, 0
for i = 2, #KEYS do
  local owner, deadline, last, ended = unpack(redis.call('HMGET', KEYS[i], 'nonce', 'until', 'token', 'ended'))
  if ended == nonce then return {'ended'} end
  local remaining = (deadline or 0) - now
  if not owner or owner == '' or remaining <= 0 then
    mine = false
  elseif owner ~= nonce then
    mine = false
    if remaining > left then left, holder = remaining, owner end
    if ARGV[6] ~= '' then
      local queue = string.gsub(KEYS[i], ':lock:', ':waiting:', 1)
      redis.call('ZADD', queue, ARGV[7], ARGV[6])
      redis.call('PEXPIRE', queue, remaining + 60000)
      redis.call('HSET', KEYS[i], 'waiting', '1')
    end
  end
  token = math.max(token, tonumber(last or max))
end
if holder then return {'held', left, holder} end
if not mine then token = math.max(token, tonumber(floor)) + 1 end -- a repeated attempt gets its token again
if token > tonumber(ceiling) then return {'ceiling'} end

local text, deadline = string.format('%d', token), string.format('%d', now + ARGV[4])
for i = 2, #KEYS do
  redis.call('HSET', KEYS[i], 'nonce', nonce, 'until', deadline, 'token', text, 'details', ARGV[5])
  if ARGV[6] ~= '' then redis.call('ZREM', (string.gsub(KEYS[i], ':lock:', ':waiting:', 1)), ARGV[6]) end
end
if token > tonumber(max) then redis.call('HSET', KEYS[1], 'max', text) end
if version ~= ARGV[1] then redis.call('HSET', KEYS[1], 'version', ARGV[1]) end
return token
