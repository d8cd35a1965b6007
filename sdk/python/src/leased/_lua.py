"""The scripts of storagegate/redisgate: go test ./storagegate/redisgate -run OtherLanguages -update-languages"""

ENTER = '''-- The fencing rule. It is the beginning of every script of this package that writes data.
-- KEYS[1]  the mark, decimal text, absent while the resource is not fenced
-- ARGV[1]  the token of the write, decimal text, "0" for none
-- ARGV[2]  the largest jump above the mark, "0" for the default, 2^40; "9007199254740991" admits every jump
-- Returns {"stale", mark} or {"jump", mark} for a refusal. Otherwise it raises the
-- mark and continues; if the mark cannot be stored, nothing is written.
-- Tokens are compared as doubles, which are exact below 2^53, and are stored and
-- returned as text: Lua would print large numbers with an exponent.
local mark = redis.call('GET', KEYS[1])
if mark ~= ARGV[1] then -- otherwise it is another write of the holder, the common case
  local held, token, bound = tonumber(mark or 0), tonumber(ARGV[1]), tonumber(ARGV[2])
  if not held then
    return redis.error_reply('ERR the mark at ' .. KEYS[1] .. ' is not a token; find out which program wrote it')
  end
  if token < held then return {'stale', mark} end
  if bound == 0 then bound = 1099511627776 end
  if token - held > bound then return {'jump', mark or '0'} end
  if token > held then redis.call('SET', KEYS[1], ARGV[1]) end
end
-- Writes only the mark, which fence.lua has raised.
-- KEYS[1]  the mark
-- ARGV[1]  the token
-- ARGV[2]  the largest jump
return 1
'''

WRITE = '''-- The fencing rule. It is the beginning of every script of this package that writes data.
-- KEYS[1]  the mark, decimal text, absent while the resource is not fenced
-- ARGV[1]  the token of the write, decimal text, "0" for none
-- ARGV[2]  the largest jump above the mark, "0" for the default, 2^40; "9007199254740991" admits every jump
-- Returns {"stale", mark} or {"jump", mark} for a refusal. Otherwise it raises the
-- mark and continues; if the mark cannot be stored, nothing is written.
-- Tokens are compared as doubles, which are exact below 2^53, and are stored and
-- returned as text: Lua would print large numbers with an exponent.
local mark = redis.call('GET', KEYS[1])
if mark ~= ARGV[1] then -- otherwise it is another write of the holder, the common case
  local held, token, bound = tonumber(mark or 0), tonumber(ARGV[1]), tonumber(ARGV[2])
  if not held then
    return redis.error_reply('ERR the mark at ' .. KEYS[1] .. ' is not a token; find out which program wrote it')
  end
  if token < held then return {'stale', mark} end
  if bound == 0 then bound = 1099511627776 end
  if token - held > bound then return {'jump', mark or '0'} end
  if token > held then redis.call('SET', KEYS[1], ARGV[1]) end
end
-- Runs commands that each write one key. fence.lua runs before it, undo.lua after
-- it.
-- KEYS[1]    the mark
-- KEYS[1+i]  the key of command i
-- ARGV[1]    the token
-- ARGV[2]    the largest jump
-- ARGV[3..]  for each command: its name, the number of arguments, the arguments
-- If a command fails, it returns {"failed", number of executed commands, message}.
-- The mark stays raised if a command was executed.
local message
local at = 3
for i = 2, #KEYS do
  local count = tonumber(ARGV[at + 1])
  local reply = redis.pcall(ARGV[at], KEYS[i], unpack(ARGV, at + 2, at + 1 + count))
  message = type(reply) == 'table' and reply.err
  if message then
    if i == 2 then break end
    return {'failed', i - 2, message}
  end
  at = at + 2 + count
end
if not message then return 1 end
-- The end of a script whose first command failed. Nothing was written, so it
-- restores the mark that fence.lua has read. The script is atomic, so no one has
-- seen the raised mark.
-- KEYS[1]  the mark
-- ARGV[1]  the token
-- The script before it sets the local variable message.
if mark ~= ARGV[1] then
  if mark then redis.call('SET', KEYS[1], mark) else redis.call('DEL', KEYS[1]) end
end
return {'failed', 0, message}
'''

CUSTOM = '''-- The fencing rule. It is the beginning of every script of this package that writes data.
-- KEYS[1]  the mark, decimal text, absent while the resource is not fenced
-- ARGV[1]  the token of the write, decimal text, "0" for none
-- ARGV[2]  the largest jump above the mark, "0" for the default, 2^40; "9007199254740991" admits every jump
-- Returns {"stale", mark} or {"jump", mark} for a refusal. Otherwise it raises the
-- mark and continues; if the mark cannot be stored, nothing is written.
-- Tokens are compared as doubles, which are exact below 2^53, and are stored and
-- returned as text: Lua would print large numbers with an exponent.
local mark = redis.call('GET', KEYS[1])
if mark ~= ARGV[1] then -- otherwise it is another write of the holder, the common case
  local held, token, bound = tonumber(mark or 0), tonumber(ARGV[1]), tonumber(ARGV[2])
  if not held then
    return redis.error_reply('ERR the mark at ' .. KEYS[1] .. ' is not a token; find out which program wrote it')
  end
  if token < held then return {'stale', mark} end
  if bound == 0 then bound = 1099511627776 end
  if token - held > bound then return {'jump', mark or '0'} end
  if token > held then redis.call('SET', KEYS[1], ARGV[1]) end
end
-- Runs a script of the caller, which replaces the line BODY. fence.lua runs
-- before it.
-- KEYS[1]    the mark
-- KEYS[2..]  the KEYS of the caller's script
-- ARGV[1]    the token
-- ARGV[2]    the largest jump
-- ARGV[3..]  the ARGV of the caller's script
-- Returns {"done", result of the script} or {"raised", message}. The mark stays
-- raised in both cases, because a failed script may have written.
local function shift(list, from)
  local rest = {}
  for i = from, #list do rest[i - from + 1] = list[i] end
  return rest
end
local function body(KEYS, ARGV)
BODY
end
local ok, result = pcall(body, shift(KEYS, 2), shift(ARGV, 3))
if type(result) == 'table' and result.err then
  ok, result = false, result.err
end
if ok then return {'done', result} end
return {'raised', tostring(result)}
'''

ONE_KEY = frozenset('''
APPEND BITFIELD DECR DECRBY EXPIRE EXPIREAT GEOADD GETDEL GETEX GETSET HDEL HEXPIRE HEXPIREAT
HGETDEL HGETEX HINCRBY HINCRBYFLOAT HMSET HPERSIST HPEXPIRE HPEXPIREAT HSET HSETEX HSETNX INCR
INCRBY INCRBYFLOAT LINSERT LPOP LPUSH LPUSHX LREM LSET LTRIM PERSIST PEXPIRE PEXPIREAT PFADD
PSETEX RESTORE RPOP RPUSH RPUSHX SADD SET SETBIT SETEX SETNX SETRANGE SPOP SREM XACK XADD
XAUTOCLAIM XCLAIM XDEL XSETID XTRIM ZADD ZINCRBY ZPOPMAX ZPOPMIN ZREM ZREMRANGEBYLEX
ZREMRANGEBYRANK ZREMRANGEBYSCORE
'''.split())
KEYS_ONLY = frozenset('''
DEL UNLINK
'''.split())
