-- raise: accept a larger value for attempts that hold their locks here.
--
-- KEYS  max, epoch
--       then for each attempt and each of its resources: lock, counter
-- ARGV  the caller's epoch, how long an idle counter is kept (ms)
--       then for each attempt: nonce, token, number of resources
-- Answer: "ok" and for each attempt the token, or "refused"; or only "empty",
--       or only "epoch" with the node's larger one.
--
-- Only while every lock is mine here and no counter is above the token.
local call, K, A = redis.call, KEYS, ARGV
local seen = call('MGET', unpack(K))
local max, epoch = seen[1], seen[2] or '0'
if not max then return {'empty'} end
if epoch ~= A[1] then
  if tonumber(epoch) > tonumber(A[1]) then return {'epoch ' .. epoch} end
  call('SET', K[2], A[1])
end
max = tonumber(max)
local before, answers, k, a = max, {'ok'}, 3, 3

while a <= #A do
  local mark, token, n = A[a] .. '\n', tonumber(A[a + 1]), tonumber(A[a + 2])
  local last, ok = k + 2 * (n - 1), true
  for i = k, last, 2 do
    local lock = seen[i]
    ok = ok and lock ~= false and string.sub(lock, 1, #mark) == mark and tonumber(seen[i + 1] or max) <= token
  end
  if ok then
    for i = k, last, 2 do call('SET', K[i + 1], A[a + 1], 'PX', A[2]) end
    if token > max then max = token end
  end
  answers[#answers + 1] = ok and A[a + 1] or 'refused'
  k, a = last + 2, a + 3
end
if max > before then call('SET', K[1], string.format('%.0f', max)) end
return answers
