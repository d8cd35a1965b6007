package redisgate

import (
	"errors"
	"fmt"
	"strings"

	"github.com/leased-project/leased/fencing"
)

// maxArgs is the maximum number of arguments of a command. Lua passes them on its
// stack, which is limited.
const maxArgs = 4000

// Tx collects the commands of one gated write. They run in the order in which they
// were added, after the function that adds them has returned. A Tx cannot read:
// enter the gate, read with the client, then write.
type Tx struct {
	resource fencing.Resource
	anySlot  bool
	keys     []string
	args     []any
	plainSet bool // there is one command, and it is a SET without options
	err      error
}

// Do adds a command that writes one key, such as Do("ZADD", key, 1, "x"). The key
// is always the first argument. Commands with several keys, such as RENAME, COPY
// or MSET, and unknown commands are refused; use a script and [Gate.Run] for them.
func (tx *Tx) Do(command, key string, args ...any) {
	command = strings.ToUpper(command)
	switch {
	case tx.err != nil:
		return
	case command == "":
		tx.err = errors.New("the name of the command is empty")
		return
	case len(args) > maxArgs:
		tx.err = fmt.Errorf("%s %q has %d arguments, at most %d are allowed; use several commands",
			command, key, len(args), maxArgs)
		return
	}
	if tx.err = checkCommand(command, len(args)); tx.err != nil {
		return
	}
	if tx.err = checkKey(tx.resource, key, tx.anySlot); tx.err != nil {
		return
	}
	tx.plainSet = len(tx.keys) == 0 && command == "SET" && len(args) == 1
	tx.keys = append(tx.keys, key)
	tx.args = append(append(tx.args, command, len(args)), args...)
}

// Set sets a string.
func (tx *Tx) Set(key string, value any) { tx.Do("SET", key, value) }

// Del deletes a key.
func (tx *Tx) Del(key string) { tx.Do("DEL", key) }

// HSet sets fields of a hash, given as field, value, field, value.
func (tx *Tx) HSet(key string, fieldsAndValues ...any) { tx.Do("HSET", key, fieldsAndValues...) }

// HDel deletes fields of a hash.
func (tx *Tx) HDel(key string, fields ...any) { tx.Do("HDEL", key, fields...) }

// LPush prepends values to a list. It is not idempotent: see the package comment
// on lost connections.
func (tx *Tx) LPush(key string, values ...any) { tx.Do("LPUSH", key, values...) }

// RPush appends values to a list. It is not idempotent: see the package comment on
// lost connections.
func (tx *Tx) RPush(key string, values ...any) { tx.Do("RPUSH", key, values...) }
