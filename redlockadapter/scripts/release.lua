-- release: end attempts, whatever they hold here.
--
-- KEYS  for each attempt: its tombstone, and for each of its resources: lock, the list of who waits
-- ARGV  the beginning of the names of wake-up channels
--       then for each attempt: nonce, life of the tombstone (ms, "0" for none),
--       whom to wake ("none"; "next" if a lock was mine; "any" always), number of resources
-- Answer: "ok" and for each attempt how many waiters were woken.
--
-- The tombstone refuses a copy of the acquire that is still on its way. Wake-ups
-- are hints: the one who has waited longest is told, on the channel of its
-- process, the key of the lock.
local call, K, A = redis.call, KEYS, ARGV
local seen = call('MGET', unpack(K))
local answers, free, k, a = {'ok'}, {}, 1, 2

while a <= #A do
  local mark, tomb, wake, n = A[a] .. '\n', A[a + 1], A[a + 2], tonumber(A[a + 3])
  local first, woken = k + 1, 0
  local last = first + 2 * (n - 1)
  if tomb ~= '0' then call('SET', K[k], '1', 'PX', tomb) end
  for i = first, last, 2 do
    local lock, list = seen[i], seen[i + 1]
    local mine = lock ~= false and string.sub(lock, 1, #mark) == mark
    if mine then free[#free + 1] = K[i] end
    if list and (wake == 'any' or wake == 'next' and mine) then
      local rest = list
      while rest ~= '' do
        local head, tail = string.match(rest, '^ (%S+)(.*)$')
        rest = tail
        if call('PUBLISH', A[1] .. head, K[i]) > 0 then
          woken = woken + 1
          break
        end
      end
      if rest == '' then call('DEL', K[i + 1]) else call('SET', K[i + 1], rest, 'KEEPTTL') end
    end
  end
  answers[#answers + 1] = tostring(woken)
  k, a = last + 2, a + 4
end
if #free > 0 then call('DEL', unpack(free)) end
return answers
