-- release: end attempts, whatever they hold here.
--
-- KEYS  the node
-- ARGV  for each attempt: its lock and its body; or "*", number of locks, life of a
--       tombstone (ms, 0 for none), whom to wake ("none"; "next" if a lock was mine, which
--       is what the short form means; "any" always), for readers and permits "s" or "p" and
--       slot, and to stay in TTL (ms) and token, with spaces between, then locks and body
-- Answer: a line for each attempt (a number is a line too): "1" if a waiter was woken,
--       else "0".
--
-- The tombstone refuses a copy of the acquire that is still on its way. Wake-ups
-- are hints: the one who has waited longest is told, on the channel of its
-- process, the name of the lock. All nodes choose by the same tickets, so that they
-- choose the same one. A reader, or a permit, that stays in gives back the lock
-- that it took for its token, and is kept among those who are in.
local call, node, A = redis.call, KEYS[1], ARGV
local match, find, sub, byte, size = string.match, string.find, string.sub, string.byte, #ARGV

if size == 2 then -- the short way for most calls: one lock, and nobody waits
  local lock = call('HGET', node, A[1]) or ''
  local counter, at = match(lock, '^(%d+) %d+ ()')
  if counter and sub(lock, at) == A[2] then
    call('HSET', node, A[1], counter)
    return 0
  end
end

local base = string.match(node, '^.*}') or node -- what is kept beside the hash has no run in its name
local fields, f, i = {}, 0, 1
while i <= size do
  local locks = 1
  if byte(A[i]) == 42 then locks, i = tonumber(match(A[i], '%d+')), i + 1 end
  for k = i, i + locks - 1 do f = f + 1; fields[f] = A[k] end
  i = i + locks + 1
end
local seen = call('HMGET', node, unpack(fields))
local answers, a, writes, w, s = {}, 0, {}, 0, 0
i = 1

-- leave takes one out of those who are in, or, if its lock has not run out, puts it
-- there. It returns whether it was in, and whether anyone is now.
local function leave(lock, kind, body, ttl, token, deadline)
  local key, field = base .. ':in:' .. sub(lock, 2), kind
  if kind == 's' then field = 's' .. match(body, '^[^\n]*') end
  local was = match(call('HGET', key, field) or '', '^%d+ %d+ (.*)$') == body
  local time = call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  if ttl ~= '' and now < tonumber(deadline) then
    call('HSET', key, field, string.format('%d %s ', now + ttl, token) .. body)
    if call('PTTL', key) < tonumber(ttl) then call('PEXPIRE', key, ttl) end
  elseif ttl == '' and was then
    call('HDEL', key, field)
  end
  return was, call('EXISTS', key) == 1
end

while i <= size do
  local locks, tomb, wake, kind, ttl, token, woken = 1, '0', 'next', '', '', '', '0'
  if byte(A[i]) == 42 then
    locks, tomb, wake, kind, ttl, token = match(A[i], '^%*(%d+) (%d+) (%a+) ?(%w*) ?(%d*) ?(%d*)$')
    locks, i = tonumber(locks), i + 1
  end
  local last = i + locks - 1
  local body = A[last + 1]
  if tomb ~= '0' then
    call('SET', base .. ':tomb:' .. match(body, '^[^\n]*'), '1', 'PX', tomb)
    local head, tombs = match(call('HGET', node, 'state') or '', '^(.*) (%d+)$')
    local time = call('TIME')
    local over = time[1] * 1000 + math.floor(time[2] / 1000) + tomb
    if head and over > tonumber(tombs) then call('HSET', node, 'state', string.format('%s %d', head, over)) end
  end
  for k = i, last do
    s = s + 1
    local lock = seen[s] or call('HGET', base .. ':old', A[k]) or ''
    local flag, counter, deadline, at = match(lock, '^([!&~]*)(%d+) ?(%d*) ?()')
    local mine, freed, any = counter and at <= #lock and sub(lock, at) == body, false, false
    if flag and kind ~= '' and (mine or ttl == '') then
      freed, any = leave(A[k], kind, body, ttl, token, deadline)
    elseif flag then
      any = find(flag, '&', 1, true)
    end
    local waited = flag and find(flag, '!', 1, true)
    if wake == 'any' or wake == 'next' and waited and (mine or freed) then
      local key, told = base .. ':wait:' .. sub(A[k], 2), 0
      local list = call('GET', key) or ''
      while list ~= '' and told == 0 do
        local best
        for ticket in string.gmatch(list, '%S+') do
          if not best or ticket < best then best = ticket end
        end
        local from, to = find(list, ' ' .. best, 1, true)
        list = sub(list, 1, from - 1) .. sub(list, to + 1)
        told = math.min(1, call('PUBLISH', base .. ':wake:' .. match(best, '%-(.*)$'), sub(A[k], 2)))
      end
      if list == '' then call('DEL', key) else call('SET', key, list, 'KEEPTTL') end
      if told > 0 then woken = '1' end
      waited = list ~= ''
    end
    if mine then
      if waited or any then counter = (waited and '!' or '') .. (any and '&' or '') .. counter end
      writes[w + 1], writes[w + 2] = A[k], counter
      w = w + 2
    end
  end
  a = a + 1
  answers[a] = woken
  i = last + 2
end
if w > 0 then call('HSET', node, unpack(writes)) end
return table.concat(answers, '\n')
