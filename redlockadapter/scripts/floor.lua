-- floor: let this node accept nothing that is not above a token.
--
-- KEYS  max, floor
-- ARGV  the token
-- Answer: "ok"; or only "empty".
--
-- The largest token ever accepted is raised too: it is what an emptied node is
-- told when it comes back, and the floor must not be forgotten with this one.
local seen = redis.call('MGET', unpack(KEYS))
if not seen[1] then return {'empty'} end
local token = tonumber(ARGV[1])
if tonumber(seen[1]) < token then redis.call('SET', KEYS[1], ARGV[1]) end
if tonumber(seen[2] or '0') < token then redis.call('SET', KEYS[2], ARGV[1]) end
return {'ok'}
