-- acquire: vote on attempts, many in one call.
--
-- KEYS  the node: a hash of its state and its locks, see state.md
-- ARGV  the caller's epoch, TTL (ms)
--       then for each attempt: its lock, and its body: nonce, line break, info;
--       or, with several locks, one who waits, or a lease that others share: "*",
--       number of locks, ticket (since when it waits, a hyphen, its process; or
--       nothing), and nothing, "s" for a reader, or "p", slot, "/" and number of permits,
--       with spaces between, then locks and body
-- Answer: a line for each attempt (a number is a line too): a token that this node accepts for it, "held", the
--       time left (ms) and who holds, "ended" if its tombstone is here, "busy" if it may be
--       had in a moment, "slot" and another one that is free, or "full"; or, without any vote, only "empty", or only "epoch" with the node's larger one.
--
-- A node accepts a value once and for one nonce: counters only grow, and only
-- for who takes the lock. Asked again for the same nonce it gives the same answer, and
-- the TTL anew: who asks counts it from this question.
-- max is raised by more than is needed, so that it need not be written each time.
-- Readers and permits take the lock like everyone, for their tokens, and then
-- pass it on and stay among those who are in: see release.
local slack = 64
local call, node, A = redis.call, KEYS[1], ARGV
local match, format, byte, size = string.match, string.format, string.byte, #ARGV
local find, sub = string.find, string.sub

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
local base = string.match(node, '^.*}') or node -- what is kept beside the hash has no run in its name
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

-- inside looks at those who are in. It returns the token of the caller if it is
-- one of them; the time that the last one in its way has left, and the first one's
-- name; a slot that is free if the caller's is not; whether anyone is in.
local function inside(lock, kind, body)
  local key, all = base .. ':in:' .. sub(lock, 2), {}
  local list = call('HGETALL', key)
  local ms, first, holder, mine, any = -1, nil, '', nil, false
  for j = 1, #list, 2 do
    local deadline, token, who = match(list[j + 1], '^(%d+) (%d+) (.*)$')
    local left, number = deadline - now, tonumber(token)
    if left <= 0 then
      call('HDEL', key, list[j])
    else
      any = true
      all[list[j]] = true
      if who == body then mine = number end
      if left > ms then ms = left end
      if not first or number < first then first, holder = number, match(who, '^[^\n]*') end
    end
  end
  local same, slot, permits = sub(kind, 1, 1), match(kind, '^p(%d+)/(%d+)$')
  for field in pairs(all) do
    if sub(field, 1, 1) ~= same then return mine, ms, holder, nil, any end -- all are of one kind
  end
  if not slot or not all['p' .. slot] then return mine, -1, '', nil, any end
  for free = 1, tonumber(permits) do
    if not all['p' .. free] then return mine, -1, '', free, any end
  end
  return mine, ms, holder, nil, any
end

-- prolong gives one who is in its TTL anew.
local function prolong(lock, kind, body)
  local key, field = base .. ':in:' .. sub(lock, 2), match(kind, '^p%d+') or 's' .. match(body, '^[^\n]*')
  local token = match(call('HGET', key, field) or '', '^%d+ (%d+) ')
  if not token then return end
  call('HSET', key, field, format('%d %s ', now + A[2], token) .. body)
  if call('PTTL', key) < tonumber(A[2]) then call('PEXPIRE', key, A[2]) end
end

while i <= size do
  local locks, ticket, kind = 1, '', ''
  if byte(A[i]) == 42 then
    locks, ticket, kind = match(A[i], '^%*(%d+) (%S*) ?(%S*)$')
    locks, i = tonumber(locks), i + 1
  end
  local last = i + locks - 1
  local body = A[last + 1]
  local ended = tombs > now and call('EXISTS', base .. ':tomb:' .. match(body, '^[^\n]*')) == 1
  local ms, holder, mine, top, flags, other, busy, kept = -1, '', true, 0, nil, nil, false, nil
  for k = i, last do
    s = s + 1
    local lock = taken[A[k]] or seen[s] or call('HGET', base .. ':old', A[k])
    local counter = tonumber(lock or max)
    if counter then
      mine = false
    else
      local flag, text, deadline, who = match(lock, '^([!&~]*)(%d+) ?(%d*) ?(.*)$')
      local left = deadline == '' and 0 or deadline - now
      local yours, theirs, their, free, any
      counter = tonumber(text)
      if find(flag, '&', 1, true) then yours, theirs, their, free, any = inside(A[k], kind, body) end
      flags = flags or {}
      flags[k] = (find(flag, '!', 1, true) and '!' or '') .. (any and '&' or '')
      if yours then
        counter = yours
      elseif left > 0 and who == body then
        theirs, kept = nil, kept or {}
        kept[k] = flag .. text .. life .. body
      else
        mine = false
        if left > 0 and kind ~= '' and find(flag, '~', 1, true) then
          busy = true
        elseif left > 0 then
          theirs, their = math.max(theirs or -1, left), match(who, '^[^\n]*')
        end
        other = free or other
      end
      if not yours and (theirs or -1) >= 0 then
        if theirs > ms then ms, holder = theirs, their end
        if ticket ~= '' and not ended then
          local key = base .. ':wait:' .. sub(A[k], 2)
          local list = call('GET', key) or ''
          if not find(list, match(ticket, '%-.*$'), 1, true) then
            call('SET', key, list .. ' ' .. ticket, 'PX', theirs + 60000)
          end
          if not find(flag, '!', 1, true) then
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
    for k = i, last do
      if kept and kept[k] then
        writes[w + 1], writes[w + 2], taken[A[k]] = A[k], kept[k], kept[k]
        w = w + 2
      else
        prolong(A[k], kind, body)
      end
    end
  elseif busy then
    answer = 'busy'
  elseif other then
    answer = 'slot ' .. other
  elseif top >= 9007199254740991 or floor >= 9007199254740991 then
    answer = 'full'
  else
    if top < floor then top = floor end
    top = top + 1
    if top > max then max, changed = top + slack, true end
    answer = format('%d', top)
    local value = answer .. life .. body
    if kind ~= '' then value = '~' .. value end
    for k = i, last do
      local put = value
      if flags and flags[k] then
        local flag = flags[k]
        if byte(flag) == 33 then -- its own process need not be woken any more
          local key = base .. ':wait:' .. sub(A[k], 2)
          local list, process = call('GET', key) or '', match(ticket, '%-.*$')
          if process then
            list = string.gsub(list, ' %d+' .. string.gsub(process, '%p', '%%%0'), '')
            if list == '' then call('DEL', key) else call('SET', key, list, 'KEEPTTL') end
          end
          if list == '' then flag = sub(flag, 2) end
        end
        put = flag .. value
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
