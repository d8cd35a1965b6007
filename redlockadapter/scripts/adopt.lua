-- adopt: give locks that a session was granted through another process to this one.
--
-- KEYS  the node
-- ARGV  for each attempt: number of locks, TTL (ms) and token, with spaces between, then
--       its locks, its body, and the body that the locks have
-- Answer: a line for each attempt: its token; "taken" if not all of its locks have that
--       body and that token; or "ended" if its tombstone is here; or only "empty".
--
-- Only what is held is given, with the token that it has: no value is accepted
-- here, so nothing changes for tokens. The name changes hands, and the TTL begins
-- anew. A tombstone is left for the former name: its process may not know yet, and
-- must not take the lock back with a renewal when it was released by the new one.
local call, node, A = redis.call, KEYS[1], ARGV
local match, size = string.match, #ARGV
local head, tombs = match(call('HGET', node, 'state') or '', '^(%d+ %d+ %d+) (%d+)$')
if not head then return 'empty' end
local base = string.match(node, '^.*}') or node -- what is kept beside the hash has no run in its name
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local answers, i = {}, 1

while i <= size do
  local locks, ttl, token = match(A[i], '^(%d+) (%d+) (%d+)$')
  local last = i + locks
  local body, former = A[last + 1], A[last + 2]
  local answer, writes = token, {}
  for k = i + 1, last do
    local lock = call('HGET', node, A[k]) or call('HGET', base .. ':old', A[k]) or ''
    local flag, counter, deadline, who = match(lock, '^([!&~]*)(%d+) (%d+) (.*)$')
    if counter ~= token or tonumber(deadline) <= now or who ~= former and who ~= body then answer = 'taken' end
    if answer == token then
      writes[#writes + 1] = A[k]
      writes[#writes + 1] = flag .. string.format('%s %d ', token, now + ttl) .. body
    end
  end
  if tonumber(tombs) > now and call('EXISTS', base .. ':tomb:' .. match(body, '^[^\n]*')) == 1 then answer = 'ended' end
  if answer == token then
    call('HSET', node, unpack(writes))
    local life = math.max(10 * ttl, 60000)
    call('SET', base .. ':tomb:' .. match(former, '^[^\n]*'), '1', 'PX', string.format('%d', life))
    if now + life > tonumber(tombs) then
      tombs = string.format('%d', now + life)
      call('HSET', node, 'state', head .. ' ' .. tombs)
    end
  end
  answers[#answers + 1] = answer
  i = last + 3
end
return table.concat(answers, '\n')
