-- inspect: what this node knows of a lock.
--
-- KEYS  max, lock, counter
-- ARGV  none
-- Answer: "ok", the lock's value ("" if free), the time it has left (ms), the
--       counter; or only "empty".
local seen = redis.call('MGET', unpack(KEYS))
if not seen[1] then return {'empty'} end
return {'ok', seen[2] or '', tostring(redis.call('PTTL', KEYS[2])), seen[3] or ''}
