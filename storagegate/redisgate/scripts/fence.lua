-- The fencing rule. It stands in front of every script of this package.
-- KEYS[1]  the mark, decimal text, absent while the resource is not fenced
-- ARGV[1]  the token of the write, decimal text, "0" for none
-- ARGV[2]  the largest jump above the mark, "0" for no bound
-- A refusal is {"stale", mark} or {"jump", mark}. What passes has its mark
-- raised before it writes: if the mark cannot be stored, nothing is written.
-- Numbers are compared as doubles, exact below 2^53, and never printed: tokens
-- are stored and answered as the text they came in.
local mark = redis.call('GET', KEYS[1])
if mark ~= ARGV[1] then -- else it is the holder's next write, the usual case
  local held, token, bound = tonumber(mark or 0), tonumber(ARGV[1]), tonumber(ARGV[2])
  if not held then
    return redis.error_reply('ERR the mark at ' .. KEYS[1] .. ' is no token; something else wrote there')
  end
  if token < held then return {'stale', mark} end
  if bound > 0 and token - held > bound then return {'jump', mark or '0'} end
  if token > held then redis.call('SET', KEYS[1], ARGV[1]) end
end
