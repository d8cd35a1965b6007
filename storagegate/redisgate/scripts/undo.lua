-- The end of a script whose first command failed. Nothing was written, so it
-- restores the mark that fence.lua has read. The script is atomic, so no one has
-- seen the raised mark.
-- KEYS[1]  the mark
-- ARGV[1]  the token
-- The script before it sets the local variable message.
if mark ~= ARGV[1] then
  if mark then redis.call('SET', KEYS[1], mark) else redis.call('DEL', KEYS[1]) end
end
return {'failed', 0, message}
