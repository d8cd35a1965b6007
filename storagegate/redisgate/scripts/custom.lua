-- Runs a script of the caller, which replaces the line BODY. fence.lua runs
-- before it.
-- KEYS[1]    the mark
-- KEYS[2..]  the KEYS of the caller's script
-- ARGV[1]    the token
-- ARGV[2]    the largest jump
-- ARGV[3..]  the ARGV of the caller's script
-- Returns {"done", result of the script} or {"raised", message}. The mark stays
-- raised in both cases, because a failed script may have written.
local function shift(list, from)
  local rest = {}
  for i = from, #list do rest[i - from + 1] = list[i] end
  return rest
end
local function body(KEYS, ARGV)
BODY
end
local ok, result = pcall(body, shift(KEYS, 2), shift(ARGV, 3))
if type(result) == 'table' and result.err then
  ok, result = false, result.err
end
if ok then return {'done', result} end
return {'raised', tostring(result)}
