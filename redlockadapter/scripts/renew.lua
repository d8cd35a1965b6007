-- renew: prolong granted attempts.
--
-- KEYS  the node
-- ARGV  for each attempt: number of locks, space, TTL (ms), space, token, then its locks
--       and its body
-- Answer: a line for each attempt: its token, "taken" if the lock has passed on, or
--       "ended" if its tombstone is here; or only "empty".
--
-- A lock that this node has lost is taken back only if no counter is above the
-- token: nobody can have been granted a newer one with this node's vote then.
local call, node, A = redis.call, KEYS[1], ARGV
local match, format, size = string.match, string.format, #ARGV
local epoch, floor, max, tombs = match(call('HGET', node, 'state') or '', '^(%d+) (%d+) (%d+) (%d+)$')
if not max then return 'empty' end
max, tombs = tonumber(max), tonumber(tombs)
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local before, answers, i = max, {}, 1

while i <= size do
  local locks, ttl, token = match(A[i], '^(%d+) (%d+) (%d+)$')
  local last, number = i + locks, tonumber(token)
  local body = A[last + 1]
  local answer, writes = token, {}
  if tombs > now and call('EXISTS', node .. ':tomb:' .. match(body, '^[^\n]*')) == 1 then answer = 'ended' end
  for k = i + 1, last do
    local lock = call('HGET', node, A[k]) or call('HGET', node .. ':old', A[k]) or format('%d', max)
    local flag, counter, deadline, who = match(lock, '^(!?)(%d+) ?(%d*) ?(.*)$')
    local free = deadline == '' or tonumber(deadline) <= now
    counter = tonumber(counter)
    if answer == token and (free and counter > number or not free and who ~= body) then answer = 'taken' end
    if counter < number then counter = number end
    writes[#writes + 1] = A[k]
    writes[#writes + 1] = flag .. format('%d %d ', counter, now + ttl) .. body
  end
  if answer == token then
    call('HSET', node, unpack(writes))
    if number > max then max = number end
  end
  answers[#answers + 1] = answer
  i = last + 2
end
if max > before then call('HSET', node, 'state', format('%s %s %d %d', epoch, floor, max, tombs)) end
return table.concat(answers, '\n')
