-- inspect: what this node knows of a lock.
--
-- KEYS  the node
-- ARGV  the lock
-- Answer: the counter (nothing if there is none), and if the lock is held, with spaces
--       between, the time it has left (ms) and its body; then for each reader and permit
--       that is in, after a zero byte each, token, time left and body; or only "empty".
local call, match, node = redis.call, string.match, KEYS[1]
local state, lock = unpack(call('HMGET', node, 'state', ARGV[1]))
if not match(state or '', '^%d+ %d+ %d+ %d+$') then return 'empty' end
local base = string.match(node, '^.*}') or node -- what is kept beside the hash has no run in its name
lock = lock or call('HGET', base .. ':old', ARGV[1])
local flag, counter, deadline, body = match(lock or '', '^([!&~]*)(%d+) ?(%d*) ?(.*)$')
if not counter then return '' end
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local answer = counter
if deadline ~= '' and deadline - now > 0 then answer = counter .. ' ' .. deadline - now .. ' ' .. body end
if string.find(flag, '&', 1, true) then
  for _, value in ipairs(call('HVALS', base .. ':in:' .. string.sub(ARGV[1], 2))) do
    local over, token, who = match(value, '^(%d+) (%d+) (.*)$')
    if over - now > 0 then answer = answer .. '\0' .. token .. ' ' .. over - now .. ' ' .. who end
  end
end
return answer
