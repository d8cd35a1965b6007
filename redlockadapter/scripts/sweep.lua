-- sweep: one step of a scan that removes the data of former lives and the records of idle locks. A lock without a
-- record counts from the node's largest token, so its tokens keep growing.
--
-- KEYS  1 the node's state, 2 the latest life that was initialised
-- ARGV  1 cursor, 2 the prefix of all keys, 3 time (ms) after which an unused record is removed
-- Reply the next cursor; "0" when the scan is complete, or if this life is not initialised yet or has another format
local life = string.match(KEYS[1], ':(%x+):node$')
if redis.call('GET', KEYS[2]) ~= life or redis.call('HGET', KEYS[1], 'format') ~= '1' then return '0' end
local time = redis.call('TIME')
local oldest = time[1] * 1000 + math.floor(time[2] / 1000) - ARGV[3]
local mine = ARGV[2] .. life .. ':'
local page = redis.call('SCAN', ARGV[1], 'MATCH', ARGV[2] .. '*', 'COUNT', 200)
for _, key in ipairs(page[2]) do
  if string.sub(key, 1, #mine) ~= mine then
    if key ~= KEYS[2] then redis.call('UNLINK', key) end
  elseif string.sub(key, #mine + 1, #mine + 5) == 'lock:' then
    if tonumber(redis.call('HGET', key, 'until') or 0) < oldest then redis.call('UNLINK', key) end
  end
end
return page[1]
