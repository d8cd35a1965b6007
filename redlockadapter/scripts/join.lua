-- join: put a fresh join nonce on an emptied node.
--
-- KEYS  max, join, since
-- ARGV  the join nonce
-- Answer: "ok"; or only "data" if the node is not empty.
--
-- An init that carries an older join nonce is refused from now on. When the node
-- was first seen to be empty is remembered: its quarantine counts from then.
if redis.call('EXISTS', KEYS[1]) == 1 then return {'data'} end
redis.call('SET', KEYS[2], ARGV[1])
if redis.call('EXISTS', KEYS[3]) == 0 then
  local time = redis.call('TIME')
  redis.call('SET', KEYS[3], string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000)))
end
return {'ok'}
