package redisgate_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/storagegate"
	"github.com/leased-project/leased/storagegate/redisgate"
)

const (
	orders = fencing.Resource("orders/42")
	text   = "{orders/42}:text"
	list   = "{orders/42}:list"
)

func markOf(t *testing.T, gate *redisgate.Gate) fencing.Token {
	t.Helper()
	mark, err := gate.Mark(t.Context(), orders)
	require.NoError(t, err)
	return mark
}

func TestInvalidWriteIsNotSent(t *testing.T) {
	client := empty(t)
	gate := redisgate.New(client, fencing.Rule{})
	failure := errors.New("failure")
	require.ErrorIs(t, gate.Do(t.Context(), orders, 1, func(tx *redisgate.Tx) error {
		tx.Set(text, 1)
		return failure
	}), failure)
	require.ErrorContains(t, gate.Do(t.Context(), orders, 1, func(tx *redisgate.Tx) error {
		tx.Do("", text)
		tx.Set(text, 1)
		return nil
	}), "empty")
	require.ErrorContains(t, gate.Do(t.Context(), orders, 1, func(tx *redisgate.Tx) error {
		tx.RPush(list, make([]any, 5000)...)
		return nil
	}), "at most")
	require.Zero(t, client.DBSize(t.Context()).Val())
	require.Zero(t, gate.Counts())
}

// A failed single command must not raise the mark.
func TestFailedCommandLeavesTheMark(t *testing.T) {
	client := empty(t)
	gate := redisgate.New(client, fencing.Rule{})
	push := func(token fencing.Token) error {
		return gate.Do(t.Context(), orders, token, func(tx *redisgate.Tx) error { tx.RPush(text, "x"); return nil })
	}
	require.NoError(t, client.Set(t.Context(), text, "text", 0).Err())
	require.ErrorContains(t, push(1), "WRONGTYPE")
	require.NotErrorIs(t, push(1), storagegate.ErrUncertain)
	require.Equal(t, fencing.None, markOf(t, gate), "the first mark must be removed again")
	require.NoError(t, gate.Enter(t.Context(), orders, 5))
	require.ErrorContains(t, push(6), "WRONGTYPE")
	require.Equal(t, fencing.Token(5), markOf(t, gate))
	require.Equal(t, storagegate.Counts{Admitted: 1}, gate.Counts())
}

// Redis does not roll back, so the gate must not report "nothing was written".
func TestFailedSecondCommandIsUncertain(t *testing.T) {
	client := empty(t)
	gate := redisgate.New(client, fencing.Rule{})
	err := gate.Do(t.Context(), orders, 1, func(tx *redisgate.Tx) error {
		tx.Set(text, "written")
		tx.RPush(text, "x")
		return nil
	})
	require.ErrorIs(t, err, storagegate.ErrUncertain)
	require.ErrorContains(t, err, "1 commands were executed")
	require.Equal(t, "written", client.Get(t.Context(), text).Val())
	require.Equal(t, fencing.Token(1), markOf(t, gate), "the token has written and must be the mark")
	require.Equal(t, storagegate.Counts{Admitted: 1}, gate.Counts())
}

func TestScriptReturnsItsValue(t *testing.T) {
	gate := redisgate.New(empty(t), fencing.Rule{})
	for body, want := range map[string]any{
		"return ARGV[2] .. KEYS[1]":                 "b" + text,
		"return {1, 'x'}":                           []any{int64(1), "x"},
		"return nil":                                nil,
		"return {'stale', '9'}":                     []any{"stale", "9"},
		"return redis.call('SET', KEYS[1], 'BODY')": "OK",
		"return #KEYS + #ARGV":                      int64(3),
	} {
		value, err := gate.Run(t.Context(), orders, 1, redisgate.NewScript(body), []string{text}, "a", "b")
		require.NoError(t, err, body)
		require.Equal(t, want, value, body)
	}
	for _, body := range []string{"error('no')", "redis.call('SET', KEYS[1], 1) return redis.call('RPUSH', KEYS[1], 1)",
		"return redis.pcall('NONSENSE')"} {
		_, err := gate.Run(t.Context(), orders, 2, redisgate.NewScript(body), []string{text})
		require.ErrorIs(t, err, storagegate.ErrUncertain, body)
	}
	require.Equal(t, fencing.Token(2), markOf(t, gate))
	_, err := gate.Run(t.Context(), orders, 3, redisgate.NewScript("this is not Lua"), []string{text})
	require.Error(t, err)
	require.NotErrorIs(t, err, storagegate.ErrUncertain, "a script that does not compile is not run")
	require.Equal(t, fencing.Token(2), markOf(t, gate))
}

func TestScriptWithManyKeysAndNoArguments(t *testing.T) {
	client := empty(t)
	gate := redisgate.New(client, fencing.Rule{})
	script := redisgate.NewScript(`
		for i, key in ipairs(KEYS) do redis.call('SET', key, i) end
		return #KEYS * 100 + #ARGV`)
	for _, count := range []int{0, 1, 3, 4, 5, 20} {
		var keys []string
		for i := range count {
			keys = append(keys, redisgate.Key(orders, fmt.Sprint(":", i)))
		}
		value, err := gate.Run(t.Context(), orders, 1, script, keys)
		require.NoError(t, err, "%d keys", count)
		require.Equal(t, int64(100*count), value, "%d keys", count)
		for i, key := range keys {
			require.Equal(t, fmt.Sprint(i+1), client.Get(t.Context(), key).Val())
		}
	}
	require.Equal(t, fencing.Token(1), markOf(t, gate))
}

func TestInvalidMarkIsAnError(t *testing.T) {
	client := empty(t)
	gate := redisgate.New(client, fencing.Rule{})
	require.NoError(t, client.Set(t.Context(), redisgate.MarkKey(orders), "hello", 0).Err())
	require.ErrorContains(t, gate.Enter(t.Context(), orders, 1), "is not a token")
	_, err := gate.Mark(t.Context(), orders)
	require.ErrorIs(t, err, fencing.ErrInvalidToken)
}

// If the mark cannot be stored, nothing may be written.
func TestUserWithoutAccessToMarksWritesNothing(t *testing.T) {
	server := testserver.Redis(t)
	admin := connect(t, server.Addr)
	require.NoError(t, admin.Do(t.Context(), "ACL", "SETUSER", "writer", "on", "nopass", "+@all", "~{*",
		"%R~leased:mark:*").Err())
	client := redis.NewClient(&redis.Options{Addr: server.Addr, Username: "writer", Password: "x"})
	defer client.Close()
	gate := redisgate.New(client, fencing.Rule{})
	require.Error(t, gate.Do(t.Context(), orders, 1, func(tx *redisgate.Tx) error { tx.Set(text, "x"); return nil }))
	require.Error(t, gate.Do(t.Context(), orders, 1, func(tx *redisgate.Tx) error { tx.RPush(list, "x"); return nil }))
	require.Zero(t, admin.DBSize(t.Context()).Val())
}

// The server is paused when it gets the write. The client retries three times by
// default, but must send the write only once, and the outcome must be uncertain.
func TestWriteWithoutReplyIsUncertainAndSentOnce(t *testing.T) {
	server := testserver.Redis(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr, ReadTimeout: 2 * time.Second, PoolSize: 8})
	defer client.Close()
	// Open connections for retries in advance, because the handshake of a new
	// connection would fail while the server is paused.
	var opened [8]*redis.Conn
	for i := range opened {
		opened[i] = client.Conn()
		require.NoError(t, opened[i].Ping(t.Context()).Err())
	}
	for _, conn := range opened {
		require.NoError(t, conn.Close()) // back to the pool
	}
	gate := redisgate.New(client, fencing.Rule{})
	push := func() error {
		return gate.Do(t.Context(), orders, 1, func(tx *redisgate.Tx) error { tx.RPush(list, "x"); return nil })
	}
	require.NoError(t, push())
	server.Pause()
	require.ErrorIs(t, push(), storagegate.ErrUncertain)
	server.Resume()
	// The server handles all requests that arrived while it was paused before it
	// replies to a new connection.
	fresh := connect(t, server.Addr)
	require.Equal(t, int64(2), fresh.LLen(t.Context(), list).Val())
	require.Equal(t, storagegate.Counts{Admitted: 1}, gate.Counts(), "an unknown outcome is not a decision")
}

func TestUnreachableServerIsNotUncertain(t *testing.T) {
	server := testserver.Redis(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr, MaxRetries: -1})
	defer client.Close()
	server.Kill()
	err := redisgate.New(client, fencing.Rule{}).Enter(t.Context(), orders, 1)
	require.Error(t, err)
	require.NotErrorIs(t, err, storagegate.ErrUncertain)
}

// Marks are as durable as the data.
func TestMarkSurvivesAKill(t *testing.T) {
	server := testserver.Redis(t, testserver.RedisAppendOnly())
	client := connect(t, server.Addr)
	gate := redisgate.New(client, fencing.Rule{})
	set := func(token fencing.Token) error {
		return gate.Do(t.Context(), orders, token, func(tx *redisgate.Tx) error { tx.Set(text, token.String()); return nil })
	}
	require.NoError(t, set(34))
	server.Kill()
	require.NoError(t, server.Start())
	require.ErrorIs(t, set(33), fencing.ErrStale, "the script must be sent again, and the mark must exist")
	require.Equal(t, "34", client.Get(t.Context(), text).Val())
}
