package redisgate

import (
	"fmt"
	"strings"
)

// oneKey contains the Redis commands whose first argument is a key and that
// access no other key. A command with more keys could bypass the fence of another
// resource, or delete or lower a mark.
var oneKey = commandSet(`
	SET SETEX PSETEX SETNX SETRANGE GETSET GETDEL GETEX APPEND INCR INCRBY INCRBYFLOAT DECR DECRBY SETBIT BITFIELD
	EXPIRE PEXPIRE EXPIREAT PEXPIREAT PERSIST RESTORE
	HSET HSETNX HMSET HDEL HINCRBY HINCRBYFLOAT HEXPIRE HPEXPIRE HEXPIREAT HPEXPIREAT HPERSIST HGETDEL HGETEX HSETEX
	LPUSH RPUSH LPUSHX RPUSHX LPOP RPOP LSET LREM LTRIM LINSERT
	SADD SREM SPOP PFADD GEOADD
	ZADD ZREM ZINCRBY ZPOPMIN ZPOPMAX ZREMRANGEBYRANK ZREMRANGEBYSCORE ZREMRANGEBYLEX
	XADD XDEL XTRIM XACK XSETID XCLAIM XAUTOCLAIM`)

// keysOnly contains the commands whose arguments are all keys. They are allowed
// with one key.
var keysOnly = commandSet(`DEL UNLINK`)

func commandSet(names string) map[string]bool {
	set := map[string]bool{}
	for _, name := range strings.Fields(names) {
		set[name] = true
	}
	return set
}

// checkCommand refuses commands that may access more than one key. name is in
// upper case.
func checkCommand(name string, args int) error {
	switch {
	case oneKey[name], keysOnly[name] && args == 0:
		return nil
	case keysOnly[name]:
		return fmt.Errorf("%s is allowed with one key only; add the command once for each key", name)
	}
	return fmt.Errorf("the command %.40q is not known to access exactly one key; "+
		"use Gate.Run with a script that declares its keys", name)
}
