-- acquire: vote on attempts, many in one call.
--
-- KEYS  the node: a hash of its state and its locks, see state.md
-- ARGV  the caller's epoch, TTL (ms)
--       then for each attempt: its lock, and its body: nonce, line break, info;
--       or, with several locks or one who waits: "*", number of locks, space, ticket
--       (since when it waits, a hyphen, its process; or nothing), then locks and body
-- Answer: a line for each attempt (a number is a line too): a token that this node accepts for it, "held", the
--       time left (ms) and who holds, "ended" if its tombstone is here, or "full";
--       or, without any vote, only "empty", or only "epoch" with the node's larger one.
--
-- A node accepts a value once and for one nonce: counters only grow, and only
-- for who takes the lock. Asked again for the same nonce it gives the same answer.
-- max is raised by more than is needed, so that it need not be written each time.
local slack = 64
local call, node, A = redis.call, KEYS[1], ARGV
local match, format, byte, size = string.match, string.format, string.byte, #ARGV

local epoch, floor, max, tombs = match(call('HGET', node, 'state') or '', '^(%d+) (%d+) (%d+) (%d+)$')
if not max then return 'empty' end
local changed = epoch ~= A[1]
if changed and tonumber(epoch) > tonumber(A[1]) then return 'epoch ' .. epoch end
max = tonumber(max)
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

if size == 4 and tombs == '0' and not changed then
  -- The short way for most calls: one attempt on a lock that was released. What
  -- it does not do is left to the long way.
  local counter = tonumber(call('HGET', node, A[3]) or '')
  if counter and counter < max and (floor == '0' or counter >= tonumber(floor)) then
    call('HSET', node, A[3], format('%d %d ', counter + 1, now + A[2]) .. A[4])
    return counter + 1
  end
end
floor, tombs = tonumber(floor), tonumber(tombs)
if tombs ~= 0 and tombs <= now then tombs, changed = 0, true end

local fields, f, i = {}, 0, 3
while i <= size do
  local locks = 1
  if byte(A[i]) == 42 then locks, i = tonumber(match(A[i], '%d+')), i + 1 end
  for k = i, i + locks - 1 do f = f + 1; fields[f] = A[k] end
  i = i + locks + 1
end
local seen = call('HMGET', node, unpack(fields))
local life = format(' %d ', now + A[2])
local answers, a, writes, w, taken, s = {}, 0, {}, 0, {}, 0
i = 3

while i <= size do
  local locks, ticket = 1, ''
  if byte(A[i]) == 42 then
    locks, ticket = match(A[i], '^%*(%d+) (.*)$')
    locks, i = tonumber(locks), i + 1
  end
  local last = i + locks - 1
  local body = A[last + 1]
  local ended = tombs > now and call('EXISTS', node .. ':tomb:' .. match(body, '^[^\n]*')) == 1
  local ms, holder, mine, top, waited = -1, '', true, 0, nil
  for k = i, last do
    s = s + 1
    local lock = taken[A[k]] or seen[s] or call('HGET', node .. ':old', A[k])
    local counter = tonumber(lock or max)
    if counter then
      mine = false
    else
      local flag, text, deadline, who = match(lock, '^(!?)(%d+) ?(%d*) ?(.*)$')
      counter = tonumber(text)
      if flag ~= '' then waited = waited or {}; waited[k] = true end
      if deadline == '' or tonumber(deadline) <= now then
        mine = false
      elseif who ~= body then
        if deadline - now > ms then ms, holder = deadline - now, match(who, '^[^\n]*') end
        if ticket ~= '' and not ended then
          local key = node .. ':wait:' .. string.sub(A[k], 2)
          local list = call('GET', key) or ''
          if not string.find(list, match(ticket, '%-.*$'), 1, true) then
            call('SET', key, list .. ' ' .. ticket, 'PX', deadline - now + 60000)
          end
          if flag == '' then
            taken[A[k]] = '!' .. lock
            writes[w + 1], writes[w + 2] = A[k], '!' .. lock
            w = w + 2
          end
        end
      end
    end
    if counter > top then top = counter end
  end
  local answer
  if ended then
    answer = 'ended'
  elseif ms >= 0 then
    answer = 'held ' .. ms .. ' ' .. holder
  elseif mine then
    answer = format('%d', top)
  elseif top >= 9007199254740991 or floor >= 9007199254740991 then
    answer = 'full'
  else
    if top < floor then top = floor end
    top = top + 1
    if top > max then max, changed = top + slack, true end
    answer = format('%d', top)
    local value = answer .. life .. body
    for k = i, last do
      local put = value
      if waited and waited[k] then -- its own process need not be woken any more
        local key = node .. ':wait:' .. string.sub(A[k], 2)
        local list, process = call('GET', key) or '', match(ticket, '%-.*$')
        if process then
          list = string.gsub(list, ' %d+' .. string.gsub(process, '%p', '%%%0'), '')
          if list == '' then call('DEL', key) else call('SET', key, list, 'KEEPTTL') end
        end
        if list ~= '' then put = '!' .. value end
      end
      writes[w + 1], writes[w + 2] = A[k], put
      w = w + 2
      taken[A[k]] = put
    end
  end
  a = a + 1
  answers[a] = answer
  i = last + 2
end
if changed then
  writes[w + 1], writes[w + 2] = 'state', format('%s %d %d %d', A[1], floor, max, tombs)
  w = w + 2
end
if w > 0 then call('HSET', node, unpack(writes)) end
return table.concat(answers, '\n')
