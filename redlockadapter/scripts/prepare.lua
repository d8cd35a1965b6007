-- prepare: move a node that has data to an epoch.
--
-- KEYS  the node
-- ARGV  the epoch, "1" if a node that is doubted is believed to have data
-- Answer: "ok" and max; or only "empty", or only "epoch" with the node's larger one.
--
-- After it no vote of an older epoch can be had from this node.
local state = redis.call('HGET', KEYS[1], 'state') or ''
local epoch, floor, doubt, max, tombs = string.match(state, '^(%d+) (%d+) (%??)(%d+) (%d+)$')
if not max or doubt ~= '' and ARGV[2] ~= '1' then return {'empty'} end
if tonumber(epoch) > tonumber(ARGV[1]) then return {'epoch ' .. epoch} end
if epoch ~= ARGV[1] then
  redis.call('HSET', KEYS[1], 'state', table.concat({ARGV[1], floor, doubt .. max, tombs}, ' '))
end
return {'ok', max}
