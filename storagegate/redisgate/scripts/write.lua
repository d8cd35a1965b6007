-- Runs commands that each write one key. fence.lua runs before it, undo.lua after
-- it.
-- KEYS[1]    the mark
-- KEYS[1+i]  the key of command i
-- ARGV[1]    the token
-- ARGV[2]    the largest jump
-- ARGV[3..]  for each command: its name, the number of arguments, the arguments
-- If a command fails, it returns {"failed", number of executed commands, message}.
-- The mark stays raised if a command was executed.
local message
local at = 3
for i = 2, #KEYS do
  local count = tonumber(ARGV[at + 1])
  local reply = redis.pcall(ARGV[at], KEYS[i], unpack(ARGV, at + 2, at + 1 + count))
  message = type(reply) == 'table' and reply.err
  if message then
    if i == 2 then break end
    return {'failed', i - 2, message}
  end
  at = at + 2 + count
end
if not message then return 1 end
