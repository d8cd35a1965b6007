-- init: give a node that was emptied, or is doubted, its vote back.
--
-- KEYS  the node
-- ARGV  the join nonce, the epoch, the floor, the quarantine (ms), the run id of the server,
--       the longest TTL of all (ms), "1" if a restart of the server loses nothing that was answered,
--       "1" if it gets its vote by the word of nodes that were restarted
-- Answer: "ok"; "data" if the node is not empty; "superseded" if the join nonce is
--       another one; "wait" and the rest of the quarantine (ms); "epoch" and the node's larger one.
--
-- A node that is doubted has no quarantine: if its word is true it has forgotten no
-- lock, and tokens do not depend on that.
local call, node = redis.call, KEYS[1]
local state, join, since, ttl = unpack(call('HMGET', node, 'state', 'join', 'since', 'ttl'))
local epoch, max, tombs = string.match(state or '0 0 - 0', '^(%d+) %d+ (%S+) (%d+)$')
if tonumber(max) then return {'data'} end
if join ~= ARGV[1] then return {'superseded'} end
if tonumber(epoch) > tonumber(ARGV[2]) then return {'epoch ' .. epoch} end
local time = call('TIME')
local passed = time[1] * 1000 + math.floor(time[2] / 1000) - tonumber(since or '0')
local left = tonumber(ARGV[4]) - passed
if left > 0 and max == '-' then
  -- a clock that was set back must not close the node for longer than its quarantine
  if passed < 0 then call('HDEL', node, 'since') end
  return {'wait ' .. string.format('%d', math.min(left, tonumber(ARGV[4])))}
end
local floor, own = ARGV[3], string.match(max, '%d+')
if own and tonumber(own) > tonumber(floor) then floor = own end
call('HSET', node, 'state', table.concat({ARGV[2], floor, floor, tombs}, ' '))
call('HSETNX', node, 'run', ARGV[5] .. ' ' .. (ARGV[7] or '0')) -- admit has noted it, unless all was lost since
call('HDEL', node, 'join', 'since', 'believed')
if ARGV[8] == '1' then call('HSET', node, 'believed', string.format('%d', time[1] * 1000)) end
local base = string.match(node, '^.*}') or node
local me, was = string.sub(node, #base + 2), call('GET', base .. ':run') -- see admit
if was and was ~= me then call('UNLINK', base .. ':' .. was) end
call('SET', base .. ':run', me)
if ARGV[6] and tonumber(ARGV[6]) > tonumber(ttl or '0') then call('HSET', node, 'ttl', ARGV[6]) end
return {'ok'}
