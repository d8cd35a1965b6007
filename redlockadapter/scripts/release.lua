-- release: end an attempt on this node and wake the next waiter.
--
-- KEYS  the record of each lock
-- ARGV  1 nonce, 2 cause ("released", "broken", or "withdrawn" by the process that made the attempt), 3 the prefix of wake-up channels,
--       4 which process to wake: "next" for the longest waiter if this call freed the lock,
--         "any" for the longest waiter, "none",
--       5 "1" to refuse a copy of this attempt's acquire or renew that arrives later, over
--         another connection,
--       6 the granted token, 0 if the attempt was not granted,
--       7 version and 8 fleet of a break; missing otherwise
-- Reply the number of processes that were woken, or why this node does not confirm a break, which it has recorded:
--       {empty}, {format, FORMAT}, {fleet, FLEET}, {version, VERSION}
--
-- The token stays in the record: the next acquire must exceed it. Endings are in the order of tokens: no
-- lease whose token is at or below the largest one that ended is ever renewed, whatever arrives late.
-- A lease that was renewed is not withdrawn: another process has found the attempt granted, and has said so to its holder.
local woken, token = 0, tonumber(ARGV[6])
for i = 1, #KEYS do
  local owner, waiting, ended, last, renewed =
    unpack(redis.call('HMGET', KEYS[i], 'nonce', 'waiting', 'ended', 'token', 'renewed'))
  local freed = owner == ARGV[1]
  local kept = freed and ARGV[2] == 'withdrawn' and renewed == last
  if token > tonumber(ended or 0) then ended = ARGV[6] end
  if kept then
    freed = false
  elseif freed then
    redis.call('HSET', KEYS[i], 'nonce', '', 'released', ARGV[1], 'ended', ended or '0')
  elseif ARGV[5] == '1' or token > 0 then
    redis.call('HSET', KEYS[i], 'released', ARGV[1], 'ended', ended or '0')
    local time = redis.call('TIME') -- sweep.lua removes a record after this
    redis.call('HSETNX', KEYS[i], 'until', string.format('%d', time[1] * 1000 + math.floor(time[2] / 1000)))
  end
  if ARGV[2] == 'broken' then redis.call('HSET', KEYS[i], 'broken', ARGV[1]) end
  if waiting and (ARGV[4] == 'any' or ARGV[4] == 'next' and freed) then
    local first = redis.call('ZPOPMIN', (string.gsub(KEYS[i], ':lock:', ':waiting:', 1)))[1]
    if first then
      local resource = string.match(KEYS[i], ':lock:(.*)')
      woken = woken + redis.call('PUBLISH', ARGV[3] .. string.match(first, '^%S+'), resource)
    else
      redis.call('HDEL', KEYS[i], 'waiting')
    end
  end
end
if ARGV[2] ~= 'broken' then return woken end
-- A quorum of the nodes that vote under this version, and under no newer one, refuses every renewal.
local state = string.gsub(KEYS[1], ':lock:.*', ':node', 1)
local format, version, fleet = unpack(redis.call('HMGET', state, 'format', 'version', 'fleet'))
if not format then return {'empty'} end
if format ~= '1' then return {'format', format} end
if fleet ~= ARGV[8] then return {'fleet', fleet} end
if tonumber(version) > tonumber(ARGV[7]) then return {'version', version} end
return woken
