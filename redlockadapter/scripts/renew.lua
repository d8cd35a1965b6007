-- renew: prolong granted attempts.
--
-- KEYS  the node
-- ARGV  for each attempt: number of locks, TTL (ms), token, and for readers and permits
--       "s" or "p" and slot, with spaces between, then its locks and its body
-- Answer: a line for each attempt: its token, "taken" if the lock has passed on, or
--       "ended" if its tombstone is here; or only "empty".
--
-- A lock that this node has lost is taken back only if neither its counter nor the
-- floor is above the token: nobody can have been granted a newer one with this node's
-- vote then, nor been told that none that small will come.
-- Readers and permits are prolonged where they are in.
local call, node, A = redis.call, KEYS[1], ARGV
local match, find, sub, format, size = string.match, string.find, string.sub, string.format, #ARGV
local epoch, floor, max, tombs = match(call('HGET', node, 'state') or '', '^(%d+) (%d+) (%d+) (%d+)$')
if not max then return 'empty' end
local base = string.match(node, '^.*}') or node -- what is kept beside the hash has no run in its name
floor, max, tombs = tonumber(floor), tonumber(max), tonumber(tombs)
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local before, answers, i = max, {}, 1

-- fieldOf is the name of a reader or a permit among those who are in.
local function fieldOf(kind, body)
  return kind == 's' and 's' .. match(body, '^[^\n]*') or kind
end

-- barred reports whether someone who is in keeps out one of this kind.
local function barred(key, kind, field)
  local list = call('HGETALL', key)
  for j = 1, #list, 2 do
    local other = list[j] == field or kind == '' or sub(list[j], 1, 1) ~= sub(kind, 1, 1)
    if other and tonumber(match(list[j + 1], '^%d+')) > now then return true end
  end
  return false
end

while i <= size do
  local locks, ttl, token, kind = match(A[i], '^(%d+) (%d+) (%d+) ?(%w*)$')
  local last, number = i + locks, tonumber(token)
  local body = A[last + 1]
  local field, answer, writes = fieldOf(kind, body), token, {}
  if tombs > now and call('EXISTS', base .. ':tomb:' .. match(body, '^[^\n]*')) == 1 then answer = 'ended' end
  for k = i + 1, last do
    local lock = call('HGET', node, A[k]) or call('HGET', base .. ':old', A[k]) or format('%d', max)
    local flag, counter, deadline, who = match(lock, '^([!&~]*)(%d+) ?(%d*) ?(.*)$')
    local free = deadline == '' or tonumber(deadline) <= now
    local mine, key = not free and who == body, base .. ':in:' .. sub(A[k], 2)
    local over, theirs = match(kind ~= '' and call('HGET', key, field) or '', '^(%d+) %d+ (.*)$')
    local isIn = theirs == body and tonumber(over) > now
    counter = tonumber(counter)
    local so = answer
    if answer == token and (free and math.max(counter, floor) > number or not free and who ~= body) then answer = 'taken' end
    if answer == token and not mine and barred(key, kind, field) then answer = 'taken' end
    if isIn then answer = so end
    local value = lock
    flag = (find(flag, '!', 1, true) and '!' or '') .. ((kind ~= '' or find(flag, '&', 1, true)) and '&' or '')
    if kind == '' then
      value = flag .. format('%d %d ', math.max(counter, number), now + ttl) .. body
    elseif mine or free then -- the lock that it took for its token is given back
      value = flag .. format('%d', math.max(counter, number))
    end
    writes[#writes + 1] = A[k]
    writes[#writes + 1] = value
  end
  if answer == token then
    for k = i + 1, kind ~= '' and last or i do
      local key = base .. ':in:' .. sub(A[k], 2)
      call('HSET', key, field, format('%d %s ', now + ttl, token) .. body)
      if call('PTTL', key) < tonumber(ttl) then call('PEXPIRE', key, ttl) end
    end
    call('HSET', node, unpack(writes))
    if number > max then max = number end
  end
  answers[#answers + 1] = answer
  i = last + 2
end
if max > before then call('HSET', node, 'state', format('%s %d %d %d', epoch, floor, max, tombs)) end
return table.concat(answers, '\n')
