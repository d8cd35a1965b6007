-- release: end attempts, whatever they hold here.
--
-- KEYS  tombs (is there any tombstone)
--       then for each attempt and each of its resources: lock, the list of who waits
-- ARGV  the beginning of the names of wake-up channels, that of the keys of tombstones
--       then for each attempt: nonce, life of the tombstone (ms, "0" for none),
--       whom to wake ("none"; "next" if a lock was mine; "any" always), number of resources
-- Answer: "ok" and for each attempt how many waiters were woken.
--
-- The tombstone refuses a copy of the acquire that is still on its way. Wake-ups
-- are hints: the one who has waited longest is told, on the channel of its
-- process, the key of the lock. All nodes choose by the same tickets, so that they
-- choose the same one.
local call, K, A = redis.call, KEYS, ARGV
local seen = call('MGET', unpack(K))
local answers, free, k = {'ok'}, {}, 2

for a = 3, #A, 4 do
  local mark, tomb, wake, woken = A[a] .. '\n', A[a + 1], A[a + 2], 0
  local last = k + 2 * (tonumber(A[a + 3]) - 1)
  if tomb ~= '0' then
    call('SET', A[2] .. A[a], '1', 'PX', tomb)
    if call('PTTL', K[1]) < tonumber(tomb) then call('SET', K[1], '1', 'PX', tomb) end
  end
  for i = k, last, 2 do
    local lock, list, before = seen[i], seen[i + 1], woken
    local mine = lock ~= false and string.sub(lock, 1, #mark) == mark
    if mine then free[#free + 1] = K[i] end
    if list and (wake == 'any' or wake == 'next' and mine) then
      while list ~= '' and woken == before do
        local best
        for ticket in string.gmatch(list, '%S+') do
          if not best or ticket < best then best = ticket end
        end
        local from, to = string.find(list, ' ' .. best, 1, true)
        list = string.sub(list, 1, from - 1) .. string.sub(list, to + 1)
        woken = woken + math.min(1, call('PUBLISH', A[1] .. string.match(best, '%-(.*)$'), K[i]))
      end
      if list == '' then call('DEL', K[i + 1]) else call('SET', K[i + 1], list, 'KEEPTTL') end
    end
  end
  answers[#answers + 1] = tostring(woken)
  k = last + 2
end
if #free > 0 then call('DEL', unpack(free)) end
return answers
