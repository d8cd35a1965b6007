-- Lowers the mark of a resource.
-- KEYS[1]  the mark
-- ARGV[1]  the expected mark
-- ARGV[2]  the new mark
-- Returns {"changed", mark} if the mark is not the expected one.
local mark = redis.call('GET', KEYS[1])
if mark ~= ARGV[1] then return {'changed', mark or '0'} end
redis.call('SET', KEYS[1], ARGV[2])
return 1
