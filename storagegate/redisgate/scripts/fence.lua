-- The fencing rule. It is the beginning of every script of this package that writes data.
-- KEYS[1]  the mark, decimal text, absent while the resource is not fenced
-- ARGV[1]  the token of the write, decimal text, "0" for none
-- ARGV[2]  the largest jump above the mark, "0" for the default, 2^40; "9007199254740991" admits every jump
-- Returns {"stale", mark} or {"jump", mark} for a refusal. Otherwise it raises the
-- mark and continues; if the mark cannot be stored, nothing is written.
-- Tokens are compared as doubles, which are exact below 2^53, and are stored and
-- returned as text: Lua would print large numbers with an exponent.
local mark = redis.call('GET', KEYS[1])
if mark ~= ARGV[1] then -- otherwise it is another write of the holder, the common case
  local held, token, bound = tonumber(mark or 0), tonumber(ARGV[1]), tonumber(ARGV[2])
  if not held then
    return redis.error_reply('ERR the mark at ' .. KEYS[1] .. ' is not a token; find out which program wrote it')
  end
  if token < held then return {'stale', mark} end
  if bound == 0 then bound = 1099511627776 end
  if token - held > bound then return {'jump', mark or '0'} end
  if token > held then redis.call('SET', KEYS[1], ARGV[1]) end
end
