-- prepare: move a node that has data to an epoch.
--
-- KEYS  max, epoch
-- ARGV  the epoch
-- Answer: "ok" and max; or only "empty", or only "epoch" with the node's larger one.
--
-- After it no vote of an older epoch can be had from this node.
local seen = redis.call('MGET', unpack(KEYS))
local max, epoch = seen[1], seen[2] or '0'
if not max then return {'empty'} end
if tonumber(epoch) > tonumber(ARGV[1]) then return {'epoch ' .. epoch} end
if epoch ~= ARGV[1] then redis.call('SET', KEYS[2], ARGV[1]) end
return {'ok', max}
