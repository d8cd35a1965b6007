-- join: put a fresh join nonce on a node that was emptied, or is doubted.
--
-- KEYS  the node
-- ARGV  the join nonce
-- Answer: "ok"; or only "data" if the node may vote.
--
-- An init that carries an older join nonce is refused from now on. When that
-- was first seen is remembered: its quarantine counts from then.
local state = redis.call('HGET', KEYS[1], 'state') or ''
if string.match(state, '^%d+ %d+ %d+ %d+$') then return {'data'} end
local time = redis.call('TIME')
redis.call('HSET', KEYS[1], 'join', ARGV[1])
redis.call('HSETNX', KEYS[1], 'since', string.format('%d', time[1] * 1000 + math.floor(time[2] / 1000)))
return {'ok'}
