package redisconn

import (
	"crypto/sha1"
	"encoding/hex"
	"strconv"
	"sync/atomic"
)

// Script is a Lua script. A server knows it by the hash of its text.
type Script struct {
	text   string
	bySHA  string // the beginning of an EVALSHA call, encoded
	byText string // the beginning of an EVAL call, encoded
}

// NewScript returns a script with this text.
func NewScript(text string) *Script {
	sum := sha1.Sum([]byte(text))
	return &Script{text: text,
		bySHA:  string(appendArgs(nil, "evalsha", hex.EncodeToString(sum[:]))),
		byText: string(appendArgs(nil, "eval", text))}
}

// Request is a script call or a plain command. One Request can be sent to several
// servers. It must not be changed once it is sent.
type Request struct {
	script     *Script
	keys       []string // in the life of the server; their prefix differs from server to server
	globalKeys []string // outside any life
	args       []byte   // encoded
	argCount   int
	plain      string // a complete encoded command; replaces the script

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
	size := 0
	for _, arg := range args {
		size += len(arg) + len("$1234\r\n\r\n")
	}
	return &Request{script: s, keys: keys, args: appendArgs(make([]byte, 0, size), args...), argCount: len(args)}
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

// NewCommand returns a plain command, such as INFO.
func NewCommand(args ...string) *Request {
	b := append([]byte{'*'}, strconv.Itoa(len(args))...)
	return &Request{plain: string(appendArgs(append(b, "\r\n"...), args...))}
}

// encode appends the request as the server of s reads it. A script is named by its
// hash, or sent with its text.
func (r *Request) encode(b []byte, s *socket, withText bool) []byte {
	if r.plain != "" {
		return append(b, r.plain...)
	}
	keys := len(r.keys) + len(r.globalKeys)
	b = append(b, '*')
	b = strconv.AppendInt(b, int64(3+keys+r.argCount), 10)
	b = append(b, "\r\n"...)
	if withText {
		b = append(b, r.script.byText...)
	} else {
		b = append(b, r.script.bySHA...)
	}
	b = appendArgs(b, strconv.Itoa(keys))
	for _, key := range r.keys {
		b = appendBulk(b, s.lifePrefix, key)
	}
	for _, key := range r.globalKeys {
		b = appendBulk(b, s.prefix, key)
	}
	return append(b, r.args...)
}

// appendArgs appends arguments in the Redis protocol.
func appendArgs(b []byte, args ...string) []byte {
	for _, arg := range args {
		b = appendBulk(b, arg, "")
	}
	return b
}

// appendBulk appends one argument, given in two parts.
func appendBulk(b []byte, prefix, rest string) []byte {
	b = append(b, '$')
	b = strconv.AppendInt(b, int64(len(prefix)+len(rest)), 10)
	b = append(b, "\r\n"...)
	b = append(b, prefix...)
	b = append(b, rest...)
	return append(b, "\r\n"...)
}
