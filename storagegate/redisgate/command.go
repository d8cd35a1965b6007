package redisgate

import (
	"fmt"
	"strings"
)

// oneKey has the commands of Redis that write their first argument, which is a
// key, and touch no other key whatever their other arguments are. A command that
// takes more keys could write past the fence of another resource, or delete or
// lower a mark.
var oneKey = commandSet(`
	SET SETEX PSETEX SETNX SETRANGE GETSET GETDEL GETEX APPEND INCR INCRBY INCRBYFLOAT DECR DECRBY SETBIT BITFIELD
	EXPIRE PEXPIRE EXPIREAT PEXPIREAT PERSIST RESTORE
	HSET HSETNX HMSET HDEL HINCRBY HINCRBYFLOAT HEXPIRE HPEXPIRE HEXPIREAT HPEXPIREAT HPERSIST HGETDEL HGETEX HSETEX
	LPUSH RPUSH LPUSHX RPUSHX LPOP RPOP LSET LREM LTRIM LINSERT
	SADD SREM SPOP PFADD GEOADD
	ZADD ZREM ZINCRBY ZPOPMIN ZPOPMAX ZREMRANGEBYRANK ZREMRANGEBYSCORE ZREMRANGEBYLEX
	XADD XDEL XTRIM XACK XSETID XCLAIM XAUTOCLAIM`)

// keysOnly has the commands whose arguments are all keys: with one alone they
// are harmless.
var keysOnly = commandSet(`DEL UNLINK`)

func commandSet(names string) map[string]bool {
	set := map[string]bool{}
	for _, name := range strings.Fields(names) {
		set[name] = true
	}
	return set
}

// checkCommand refuses what is not known to write one key. name is in upper case.
func checkCommand(name string, args int) error {
	switch {
	case oneKey[name], keysOnly[name] && args == 0:
		return nil
	case keysOnly[name]:
		return fmt.Errorf("%s takes one key here; add the command once for each key", name)
	}
	return fmt.Errorf("%.40q is not a command that is known to write one key and no other; "+
		"use those, or Gate.Run with a script whose keys are declared", name)
}
