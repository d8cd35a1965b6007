-- renew: prolong granted attempts.
--
-- KEYS  max
--       then for each attempt: its tombstone, and for each of its resources: lock, counter
-- ARGV  how long an idle counter is kept (ms)
--       then for each attempt: nonce, token, TTL (ms), info, number of resources
-- Answer: "ok" and for each attempt its token, "taken" if the lock has passed on,
--       or "ended" if its tombstone is here; or only "empty".
--
-- A lock that this node has lost is taken back only if no counter is above the
-- token: nobody can have been granted a newer one with this node's vote then.
local call, K, A = redis.call, KEYS, ARGV
local seen = call('MGET', unpack(K))
local max = seen[1]
if not max then return {'empty'} end
max = tonumber(max)
local before, answers, k, a = max, {'ok'}, 2, 2

while a <= #A do
  local mark, token, ttl, n = A[a] .. '\n', tonumber(A[a + 1]), A[a + 2], tonumber(A[a + 4])
  local tomb, first = seen[k], k + 1
  local last = first + 2 * (n - 1)
  local answer = A[a + 1]
  if tomb then answer = 'ended' end
  for i = first, last, 2 do
    local lock = call('GET', K[i]) -- an earlier attempt of this call may have taken it back
    if lock and string.sub(lock, 1, #mark) ~= mark
      or not lock and tonumber(call('GET', K[i + 1]) or max) > token then
      answer = tomb and 'ended' or 'taken'
    end
  end
  if answer == A[a + 1] then
    for i = first, last, 2 do
      call('SET', K[i], mark .. A[a + 3], 'PX', ttl)
      local counter = tonumber(call('GET', K[i + 1]) or '0')
      if counter < token then
        call('SET', K[i + 1], A[a + 1], 'PX', A[1])
      else
        call('PEXPIRE', K[i + 1], A[1])
      end
    end
    if token > max then max = token end
  end
  answers[#answers + 1] = answer
  k, a = last + 2, a + 5
end
if max > before then call('SET', K[1], string.format('%.0f', max)) end
return answers
