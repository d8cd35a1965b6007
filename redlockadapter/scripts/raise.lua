-- raise: accept a larger value for attempts that hold their locks here.
--
-- KEYS  the node
-- ARGV  the caller's epoch
--       then for each attempt: number of locks, space, token, then its locks and its body
-- Answer: a line for each attempt: the token, or "refused"; or only "empty", or only
--       "epoch" with the node's larger one.
--
-- Only while every lock is mine here, no counter is above the token, and the
-- token is above the floor: that may have been raised since the acquire.
local call, node, A = redis.call, KEYS[1], ARGV
local match, format, size = string.match, string.format, #ARGV
local epoch, floor, max, tombs = match(call('HGET', node, 'state') or '', '^(%d+) (%d+) (%d+) (%d+)$')
if not max then return 'empty' end
local changed = epoch ~= A[1]
if changed and tonumber(epoch) > tonumber(A[1]) then return 'epoch ' .. epoch end
local base = string.match(node, '^.*}') or node -- what is kept beside the hash has no run in its name
max = tonumber(max)
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local answers, i = {}, 2

while i <= size do
  local locks, token = match(A[i], '^(%d+) (%d+)$')
  local last, number = i + locks, tonumber(token)
  local ok, writes = number > tonumber(floor), {}
  for k = i + 1, last do
    local lock = call('HGET', node, A[k]) or call('HGET', base .. ':old', A[k]) or ''
    local flag, counter, deadline, who = match(lock, '^([!&~]*)(%d+) (%d+) (.*)$')
    ok = ok and who == A[last + 1] and tonumber(deadline) > now and tonumber(counter) <= number
    if ok then
      writes[#writes + 1] = A[k]
      writes[#writes + 1] = flag .. token .. ' ' .. deadline .. ' ' .. who
    end
  end
  if ok then
    call('HSET', node, unpack(writes))
    if number > max then max, changed = number, true end
  end
  answers[#answers + 1] = ok and token or 'refused'
  i = last + 2
end
if changed then call('HSET', node, 'state', format('%s %s %d %s', A[1], floor, max, tombs)) end
return table.concat(answers, '\n')
