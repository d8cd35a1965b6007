package redisconn

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/lease/engine"
)

// echoServer is a server that holds every ECHO until the test lets it go on.
type echoServer struct {
	addr     string
	received chan string   // the texts
	reply    chan struct{} // lets one go on
}

func newEchoServer(t *testing.T) *echoServer {
	t.Helper()
	mini := miniredis.RunT(t)
	e := &echoServer{addr: mini.Addr(), received: make(chan string, 10*maxBatch), reply: make(chan struct{}, 10*maxBatch)}
	mini.Server().SetPreHook(func(c *server.Peer, command string, args ...string) bool {
		switch command {
		case "INFO":
			c.WriteBulk("redis_version:7.4.0\r\nrole:master\r\nmaxmemory_policy:noeviction\r\nrun_id:1\r\nmaster_replid:1\r\n")
			return true
		case "ECHO":
			e.received <- args[0]
			<-e.reply
		}
		return false
	})
	return e
}

// connect returns a running connection.
func (e *echoServer) connect(t *testing.T, config Config) *Conn {
	t.Helper()
	config.Options, config.MaxAge, config.MaxSkew = &redis.Options{Addr: e.addr}, time.Hour, time.Hour
	config.Clock, config.Servers, config.Failed = engine.SystemClock(), NewServers(), func() {}
	c := New(config)
	go c.Run(func() {})
	t.Cleanup(func() {
		close(e.reply) // a failed test leaves requests behind
		c.Close()
	})
	return c
}

// A canceled request that was not sent is answered and never sent. The requests around
// it keep their replies.
func TestCanceledRequestIsDropped(t *testing.T) {
	t.Parallel()
	e := newEchoServer(t)
	c := e.connect(t, Config{Timeout: time.Minute})
	var canceled atomic.Bool
	answers := map[string]chan Reply{}
	send := func(name string, may *atomic.Bool) {
		r := NewCommand("ECHO", name)
		answer := make(chan Reply, 1)
		answers[name], r.Canceled = answer, may
		r.Answer = func(_ int, r Reply) { answer <- r }
		c.Send(r)
	}
	send("a", &canceled)
	require.Equal(t, "a", <-e.received)
	send("b", &canceled)
	send("c", nil)
	canceled.Store(true)
	e.reply <- struct{}{}
	require.Equal(t, "a", (<-answers["a"]).Word(0), "it was sent before it was canceled")
	require.Equal(t, "c", <-e.received)
	dropped := <-answers["b"]
	require.ErrorIs(t, dropped.Err, ErrCanceled)
	require.False(t, dropped.MaybeExecuted)
	e.reply <- struct{}{}
	require.Equal(t, "c", (<-answers["c"]).Word(0))

	send("d", &canceled)
	require.ErrorIs(t, (<-answers["d"]).Err, ErrCanceled, "on an idle connection, too")
	send("e", nil)
	require.Equal(t, "e", <-e.received)
	e.reply <- struct{}{}
	require.Equal(t, "e", (<-answers["e"]).Word(0))
}

// A request that the user may not make fails alone: the connection stays, for the other callers. A script may have
// stopped in the middle.
func TestForbiddenRequestKeepsTheConnection(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	mini := miniredis.RunT(t)
	var connections atomic.Int32
	mini.Server().SetPreHook(func(c *server.Peer, command string, args ...string) bool {
		switch {
		case command == "INFO":
			connections.Add(1)
			c.WriteBulk("redis_version:7.4.0\r\nrole:master\r\nmaxmemory_policy:noeviction\r\nrun_id:1\r\nmaster_replid:1\r\n")
		case command == "EVALSHA" && strings.HasSuffix(args[2], ":forbidden"):
			c.WriteError("NOPERM No permissions to access a key")
		default:
			return false
		}
		return true
	})
	c := (&echoServer{addr: mini.Addr(), reply: make(chan struct{})}).connect(t, Config{Timeout: time.Minute})
	run := NewScript(`return 1`)
	for range 3 {
		got, err := c.Do(ctx, NewRequest(run, []string{"forbidden"}))
		require.ErrorIs(t, err, ErrNotPermitted)
		require.True(t, got.MaybeExecuted)
		_, err = c.Do(ctx, NewRequest(run, []string{"allowed"}))
		require.NoError(t, err)
	}
	require.EqualValues(t, 1, connections.Load())
}
