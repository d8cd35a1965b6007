-- SET of one key without options, the most frequent write. fence.lua runs before
-- it, undo.lua after it. It does the same as write.lua in fewer steps.
-- KEYS[1]  the mark
-- KEYS[2]  the key
-- ARGV[1]  the token
-- ARGV[2]  the largest jump
-- ARGV[3]  the value
local message = redis.pcall('SET', KEYS[2], ARGV[3]).err
if not message then return 1 end
