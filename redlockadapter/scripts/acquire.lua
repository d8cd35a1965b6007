-- acquire: vote on attempts, many in one call.
--
-- KEYS  max, epoch, floor
--       then for each attempt: its tombstone,
--       then for each of its resources: lock, counter, and, if it waits, the list of who waits
-- ARGV  the caller's epoch, how long an idle counter is kept (ms)
--       then for each attempt: nonce, TTL (ms), info, number of resources, waiter ("" if it does not wait)
-- Answer: "ok" and for each attempt a token that this node accepts for it,
--       "held", the time left (ms) and who holds, "ended" if its tombstone is here, or "full";
--       or, without any vote, only "empty", or only "epoch" with the node's larger one.
--
-- A node accepts a value once and for one nonce: counters only grow, and only
-- for who takes the lock. Asked again for the same nonce it gives the same answer.
local call, K, A = redis.call, KEYS, ARGV
local seen = call('MGET', unpack(K))
local max, epoch, floor = seen[1], seen[2] or '0', tonumber(seen[3] or '0')
if not max then return {'empty'} end
if epoch ~= A[1] then
  if tonumber(epoch) > tonumber(A[1]) then return {'epoch ' .. epoch} end
  call('SET', K[2], A[1])
end
max = tonumber(max)
local before, answers, taken, k, a = max, {'ok'}, {}, 4, 3

while a <= #A do
  local nonce, ttl, n, waiter = A[a], A[a + 1], tonumber(A[a + 3]), A[a + 4]
  local mark = nonce .. '\n'
  local tomb, first, stride = seen[k], k + 1, waiter == '' and 2 or 3
  local last = first + (n - 1) * stride
  local left, holder, mine, top = -1, '', true, floor
  for i = first, last, stride do
    local lock, counter = seen[i], seen[i + 1]
    if taken[K[i]] then -- an earlier attempt of this call has changed it
      lock, counter = call('GET', K[i]), call('GET', K[i + 1])
    end
    if lock ~= false and string.sub(lock, 1, #mark) ~= mark then
      local ms = call('PTTL', K[i])
      if ms > left then left, holder = ms, string.match(lock, '^[^\n]*') end
      if stride == 3 and not tomb then
        local list = call('GET', K[i + 2]) or ''
        if not string.find(list, waiter, 1, true) then
          call('SET', K[i + 2], list .. ' ' .. waiter, 'PX', math.max(ms, 1) + 60000)
        end
      end
    elseif lock == false then
      mine = false
    end
    counter = tonumber(counter or max)
    if counter > top then top = counter end
  end
  local answer
  if tomb then
    answer = 'ended'
  elseif left >= 0 then
    answer = 'held ' .. left .. ' ' .. holder
  elseif mine then
    answer = string.format('%.0f', top)
  elseif top >= 9007199254740991 then
    answer = 'full'
  else
    top = top + 1
    answer = string.format('%.0f', top)
    for i = first, last, stride do
      call('SET', K[i], mark .. A[a + 2], 'PX', ttl)
      call('SET', K[i + 1], answer, 'PX', A[2])
      taken[K[i]] = true
    end
    if top > max then max = top end
  end
  answers[#answers + 1] = answer
  k, a = last + stride, a + 5
end
if max > before then call('SET', K[1], string.format('%.0f', max)) end
return answers
