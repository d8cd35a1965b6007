-- acquire: vote on attempts, many in one call.
--
-- KEYS  max, epoch, floor, tombs (is there any tombstone)
--       then for each attempt and each of its resources: lock, counter, and, if it
--       waits, the list of who waits
-- ARGV  the caller's epoch, how long an idle counter is kept (ms), the beginning of
--       the keys of tombstones (looked for only if there are any)
--       then for each attempt: nonce, TTL (ms), info, number of resources,
--       ticket: since when it waits, a hyphen, its process ("" if it does not wait)
-- Answer: "ok" and for each attempt a token that this node accepts for it,
--       "held", the time left (ms) and who holds, "ended" if its tombstone is here,
--       or "full"; or, without any vote, only "empty", or only "epoch" with the
--       node's larger one.
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
local before, answers, taken, k = max, {'ok'}, {}, 5

-- Small numbers print exactly without a format, which is quicker.
local function text(token)
  if token < 1e14 then return tostring(token) end
  return string.format('%.0f', token)
end

for a = 4, #A, 5 do
  local mark, n, ticket = A[a] .. '\n', tonumber(A[a + 3]), A[a + 4]
  local tomb = seen[4] and call('EXISTS', A[3] .. A[a]) == 1
  local stride = ticket == '' and 2 or 3
  local last = k + (n - 1) * stride
  local left, holder, mine, top = -1, '', true, floor
  for i = k, last, stride do
    local lock, counter = seen[i], seen[i + 1]
    if taken[K[i]] then -- an earlier attempt of this call has changed it
      lock, counter = call('GET', K[i]), call('GET', K[i + 1])
    end
    if not lock then
      mine = false
    elseif string.sub(lock, 1, #mark) ~= mark then
      local ms = call('PTTL', K[i])
      if ms > left then left, holder = ms, string.match(lock, '^[^\n]*') end
      if stride == 3 and not tomb then
        local list = call('GET', K[i + 2]) or ''
        if not string.find(list, string.match(ticket, '%-.*$'), 1, true) then
          call('SET', K[i + 2], list .. ' ' .. ticket, 'PX', math.max(ms, 1) + 60000)
        end
      end
    end
    if not counter then mine = false end -- what was accepted is forgotten: vote anew
    counter = tonumber(counter or max)
    if counter > top then top = counter end
  end
  local answer
  if tomb then
    answer = 'ended'
  elseif left >= 0 then
    answer = 'held ' .. left .. ' ' .. holder
  elseif mine then
    answer = text(top)
  elseif top >= 9007199254740991 then
    answer = 'full'
  else
    top = top + 1
    answer = text(top)
    local value = mark .. A[a + 2]
    for i = k, last, stride do
      call('SET', K[i], value, 'PX', A[a + 1])
      call('SET', K[i + 1], answer, 'PX', A[2])
      taken[K[i]] = true
      if stride == 3 and seen[i + 2] then -- its process need not be woken any more
        local list = call('GET', K[i + 2]) or ''
        local process = string.gsub(string.match(ticket, '%-.*$'), '%p', '%%%0')
        call('SET', K[i + 2], (string.gsub(list, ' %d+' .. process, '')), 'KEEPTTL')
      end
    end
    if top > max then max = top end
  end
  answers[#answers + 1] = answer
  k = last + stride
end
if max > before then call('SET', K[1], text(max)) end
return answers
