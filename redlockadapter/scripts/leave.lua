-- leave: remove a waiter from queues.
--
-- KEYS  the waiters of each lock
-- ARGV  1 waiter, as passed to acquire
-- Reply the number of queues that had it
local removed = 0
for i = 1, #KEYS do removed = removed + redis.call('ZREM', KEYS[i], ARGV[1]) end
return removed
