-- release: end attempts, whatever they hold here.
--
-- KEYS  the node
-- ARGV  for each attempt: its lock and its body; or "*", number of locks, life of a
--       tombstone (ms, 0 for none), whom to wake ("none"; "next" if a lock was mine, which
--       is what the short form means; "any" always), with spaces between, then locks and body
-- Answer: a line for each attempt (a number is a line too): "1" if a waiter was woken, else "0".
--
-- The tombstone refuses a copy of the acquire that is still on its way. Wake-ups
-- are hints: the one who has waited longest is told, on the channel of its
-- process, the name of the lock. All nodes choose by the same tickets, so that they
-- choose the same one.
local call, node, A = redis.call, KEYS[1], ARGV
local match, sub, byte, size = string.match, string.sub, string.byte, #ARGV

if size == 2 then -- the short way for most calls: one lock, and nobody waits
  local lock = call('HGET', node, A[1]) or ''
  local counter, at = match(lock, '^(%d+) %d+ ()')
  if counter and sub(lock, at) == A[2] then
    call('HSET', node, A[1], counter)
    return 0
  end
end

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

while i <= size do
  local locks, tomb, wake, woken = 1, '0', 'next', '0'
  if byte(A[i]) == 42 then
    locks, tomb, wake = match(A[i], '^%*(%d+) (%d+) (%a+)$')
    locks, i = tonumber(locks), i + 1
  end
  local last = i + locks - 1
  local body = A[last + 1]
  if tomb ~= '0' then
    call('SET', node .. ':tomb:' .. match(body, '^[^\n]*'), '1', 'PX', tomb)
    local head, tombs = match(call('HGET', node, 'state') or '', '^(.*) (%d+)$')
    local time = call('TIME')
    local over = time[1] * 1000 + math.floor(time[2] / 1000) + tomb
    if head and over > tonumber(tombs) then call('HSET', node, 'state', string.format('%s %d', head, over)) end
  end
  for k = i, last do
    s = s + 1
    local lock = seen[s] or call('HGET', node .. ':old', A[k]) or ''
    local counter, at = match(lock, '^!?(%d+) %d+ ()')
    local mine = counter and sub(lock, at) == body
    local waited = mine and byte(lock) == 33
    if wake == 'any' or wake == 'next' and waited then
      local key, told = node .. ':wait:' .. sub(A[k], 2), 0
      local list = call('GET', key) or ''
      while list ~= '' and told == 0 do
        local best
        for ticket in string.gmatch(list, '%S+') do
          if not best or ticket < best then best = ticket end
        end
        local from, to = string.find(list, ' ' .. best, 1, true)
        list = sub(list, 1, from - 1) .. sub(list, to + 1)
        told = math.min(1, call('PUBLISH', node .. ':wake:' .. match(best, '%-(.*)$'), sub(A[k], 2)))
      end
      if list == '' then call('DEL', key) else call('SET', key, list, 'KEEPTTL') end
      if told > 0 then woken = '1' end
      waited = list ~= ''
    end
    if mine then
      writes[w + 1], writes[w + 2] = A[k], waited and '!' .. counter or counter
      w = w + 2
    end
  end
  a = a + 1
  answers[a] = woken
  i = last + 2
end
if w > 0 then call('HSET', node, unpack(writes)) end
return table.concat(answers, '\n')
