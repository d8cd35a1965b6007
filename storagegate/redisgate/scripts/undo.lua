-- The end of a script whose first command failed. Nothing was written, so the
-- mark is put back as fence.lua found it; nobody can have seen it in between.
-- KEYS[1]  the mark
-- ARGV[1]  the token
-- The script before it has set the local variable message.
if mark ~= ARGV[1] then
  if mark then redis.call('SET', KEYS[1], mark) else redis.call('DEL', KEYS[1]) end
end
return {'failed', 0, message}
