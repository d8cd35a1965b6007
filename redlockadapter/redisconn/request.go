package redisconn

import (
	"crypto/sha1"
	"encoding/hex"
	"sync/atomic"
)

// Script is a Lua script. A server knows it by the hash of its text.
type Script struct {
	text, hash any // strings
}

// NewScript returns a script with this text.
func NewScript(text string) *Script {
	sum := sha1.Sum([]byte(text))
	return &Script{text: text, hash: hex.EncodeToString(sum[:])}
}

// Request is a script call or a plain command. One Request can be sent to several
// servers. It must not be changed once it is sent.
type Request struct {
	script     *Script  // nil for a plain command
	keys       []string // in the life of the server; their prefix differs from server to server
	globalKeys []string // outside any life
	args       []any    // pointers to strings, which are not copied; the name of a plain command is a string

	// Answer is called exactly once for each connection that the request is sent on,
	// with the connection's Config.Index. It must not block.
	Answer func(index int, r Reply)
	// Servers, if not nil, names the run of each server, by Config.Index, that the request
	// is for. A connection to another one answers ErrLife and sends nothing.
	Servers []string
	// Canceled, if not nil and true, drops the request where it was not sent yet: slow
	// servers are spared attempts that have already ended.
	Canceled *atomic.Bool
}

// NewRequest returns a call of a script on keys of the server's life.
func NewRequest(s *Script, keys []string, args ...string) *Request {
	return &Request{script: s, keys: keys, args: pointers(args)}
}

// NewCommand returns a plain command, such as INFO.
func NewCommand(name string, args ...string) *Request {
	return &Request{args: append([]any{name}, pointers(args)...)}
}

// pointers returns arguments as go-redis takes them, without an allocation for each.
func pointers(args []string) []any {
	all := make([]any, len(args))
	for i := range args {
		all[i] = &args[i]
	}
	return all
}

// WithGlobalKeys appends keys whose names contain no life.
func (r *Request) WithGlobalKeys(keys ...string) *Request {
	r.globalKeys = keys
	return r
}

// refused returns why the request must not be sent to a server, or nil.
func (r *Request) refused(index int, server string) error {
	switch {
	case r.Canceled != nil && r.Canceled.Load():
		return ErrCanceled
	case r.Servers != nil && r.Servers[index] != server:
		return ErrLife
	}
	return nil
}

// command returns the request as the server of s reads it. A script is named by its hash, or sent with its
// text.
func (r *Request) command(s *socket, withText bool) []any {
	if r.script == nil {
		return r.args
	}
	keys := len(r.keys) + len(r.globalKeys)
	all := make([]any, 0, 3+keys+len(r.args))
	if withText {
		all = append(all, "eval", r.script.text, keys)
	} else {
		all = append(all, "evalsha", r.script.hash, keys)
	}
	for _, key := range r.keys {
		all = append(all, s.lifePrefix+key)
	}
	for _, key := range r.globalKeys {
		all = append(all, s.prefix+key)
	}
	return append(all, r.args...)
}
