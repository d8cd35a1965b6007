-- list: one step of a scan over the locks in use on this node.
--
-- KEYS  1 the node's state
-- ARGV  1 cursor, 2 the prefix of the locks' names, 3 the number of keys to look at, 4 version
-- Reply {empty}, {format, FORMAT}, {version, VERSION}, or {next cursor, resource, resource...}
--
-- A lock is in use while it is held or has waiters.
local format, version = unpack(redis.call('HMGET', KEYS[1], 'format', 'version'))
if not format then return {'empty'} end
if format ~= '1' then return {'format', format} end
if tonumber(version) > tonumber(ARGV[4]) then return {'version', version} end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local locks = string.sub(KEYS[1], 1, -5) .. 'lock:'
local pattern = string.gsub(locks .. ARGV[2], '[*?%[%]\\]', '\\%0') .. '*'
local page = redis.call('SCAN', ARGV[1], 'MATCH', pattern, 'COUNT', ARGV[3])
local reply = {page[1]}
for _, key in ipairs(page[2]) do
  local owner, deadline, waiting = unpack(redis.call('HMGET', key, 'nonce', 'until', 'waiting'))
  local held = owner and owner ~= '' and tonumber(deadline) > now
  if held or waiting and redis.call('EXISTS', (string.gsub(key, ':lock:', ':waiting:', 1))) == 1 then
    reply[#reply + 1] = string.sub(key, #locks + 1)
  end
end
return reply
