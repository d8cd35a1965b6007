-- status: what this node knows of itself.
--
-- KEYS  max, epoch, floor, since
-- ARGV  none
-- Answer: max ("" if the node is empty), epoch, floor, the time (ms) since it was
--       first seen to be empty ("" if it was not), the node's clock (ms).
local seen = redis.call('MGET', unpack(KEYS))
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local since = ''
if seen[4] then since = string.format('%.0f', math.max(0, now - tonumber(seen[4]))) end
return {seen[1] or '', seen[2] or '0', seen[3] or '0', since, string.format('%.0f', now)}
