-- status: what this node knows of itself.
--
-- KEYS  the node
-- ARGV  none
-- Answer: max ("" if the node is empty, with "?" before it if it is doubted), epoch, floor, the time (ms) since it was
--       first seen not to vote ("" if it was not), the node's clock (ms), the longest TTL
--       that anyone who connected may ask for (ms), "1" if it has its vote by the word of
--       nodes that were restarted.
local state, since, ttl, believed = unpack(redis.call('HMGET', KEYS[1], 'state', 'since', 'ttl', 'believed'))
local epoch, floor, max = string.match(state or '0 0 - 0', '^(%d+) (%d+) (%S+) %d+$')
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
-- The word of restarted nodes is all there is only as long as they come back: who was
-- not told that they have is not to keep the mark for ever.
local age = now - tonumber(believed or '0')
believed = believed and age >= 0 and age < math.max(60000, tonumber(ttl or '0')) and '1' or ''
if since then since = string.format('%d', math.max(0, now - tonumber(since))) end
return {max == '-' and '' or max, epoch, floor, since or '', string.format('%d', now), ttl or '0', believed}
