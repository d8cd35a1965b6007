package redisconn

import (
	"errors"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Reply is the answer of a server to a request.
type Reply struct {
	Int   int64    // of an integer reply
	Words []string // of an array or a string; nil for an integer
	Err   error    // why the request failed
	// MaybeExecuted: the server may have executed a request that failed.
	MaybeExecuted bool
}

// Word returns the i-th word of a reply, or "".
func (r Reply) Word(i int) string {
	if i < len(r.Words) {
		return r.Words[i]
	}
	return ""
}

// RedisError is an error reply.
type RedisError string

// Error returns the text of the server.
func (e RedisError) Error() string { return string(e) }

// Code returns the first word, such as NOSCRIPT.
func (e RedisError) Code() string {
	word, _, _ := strings.Cut(string(e), " ")
	return word
}

// Is makes errors.Is match ErrNotPermitted.
func (e RedisError) Is(target error) bool { return target == ErrNotPermitted && e.Code() == "NOPERM" }

// endsConnection reports whether to reconnect: the server became a replica, loads its
// data, or requires another authentication.
func (e RedisError) endsConnection() bool {
	switch e.Code() {
	case "READONLY", "LOADING", "MASTERDOWN", "NOAUTH":
		return true
	}
	return false
}

// noScript reports whether the server does not know the script of a request, and has not run it.
func (r Reply) noScript() bool {
	refused, _ := r.Err.(RedisError) //nolint:errorlint // replyOf returns it unwrapped
	return refused.Code() == "NOSCRIPT"
}

// replyOf converts a reply of go-redis.
func replyOf(value any, err error) Reply {
	if err != nil {
		return failureOf(err)
	}
	switch value := value.(type) {
	case int64:
		return Reply{Int: value}
	case []any:
		words := make([]string, len(value))
		for i := range value {
			words[i] = wordOf(value[i])
		}
		return Reply{Words: words}
	}
	return Reply{Words: []string{wordOf(value)}}
}

// failureOf converts an error of go-redis. Without a reply, the server may have executed the request.
func failureOf(err error) Reply {
	var refused redis.Error
	switch {
	case errors.Is(err, redis.Nil):
		return Reply{Words: []string{""}}
	case errors.As(err, &refused):
		return Reply{Err: RedisError(refused.Error())}
	}
	return Reply{Err: err, MaybeExecuted: true}
}

// wordOf returns a string or an integer in a reply as text, and "" for a null.
func wordOf(value any) string {
	switch value := value.(type) {
	case string:
		return value
	case int64:
		return strconv.FormatInt(value, 10)
	}
	return ""
}
