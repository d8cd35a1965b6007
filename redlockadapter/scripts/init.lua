-- init: give an emptied node its vote back.
--
-- KEYS  max, epoch, floor, join, since, run
-- ARGV  the join nonce, the epoch, the floor, the quarantine (ms), the run id of the server
-- Answer: "ok"; "data" if the node is not empty; "superseded" if the join nonce is
--       another one; "wait" and the rest of the quarantine (ms); "epoch" and the node's larger one.
local seen = redis.call('MGET', unpack(KEYS))
if seen[1] then return {'data'} end
if seen[4] ~= ARGV[1] then return {'superseded'} end
if tonumber(seen[2] or '0') > tonumber(ARGV[2]) then return {'epoch ' .. seen[2]} end
local time = redis.call('TIME')
local passed = time[1] * 1000 + math.floor(time[2] / 1000) - tonumber(seen[5] or '0')
local left = tonumber(ARGV[4]) - passed
if left > 0 then
  -- a clock that was set back must not close the node for longer than its quarantine
  if passed < 0 then redis.call('DEL', KEYS[5]) end
  return {'wait ' .. string.format('%.0f', math.min(left, tonumber(ARGV[4])))}
end
redis.call('MSET', KEYS[1], ARGV[3], KEYS[2], ARGV[2], KEYS[3], ARGV[3], KEYS[6], ARGV[5])
redis.call('DEL', KEYS[4], KEYS[5])
return {'ok'}
