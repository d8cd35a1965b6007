package redisconn_test

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/lease/leasetest"
	"github.com/leased-project/leased/redlockadapter/redisconn"
)

// start starts a server and returns its address.
func start(t *testing.T, run int) string {
	t.Helper()
	mini := miniredis.RunT(t)
	mini.Server().SetPreHook(func(c *server.Peer, command string, _ ...string) bool {
		if command == "INFO" {
			c.WriteBulk(fmt.Sprintf("redis_version:7.4.0\r\nrole:master\r\nmaxmemory_policy:noeviction\r\n"+
				"run_id:%d\r\nmaster_replid:%d\r\n", run, run))
		}
		return command == "INFO"
	})
	return mini.Addr()
}

// After a pause of this process, or of the whole machine, nothing is sent to the server that
// was connected before the pause: the address may lead to another one.
func TestConnectionIsMadeAgainAfterAPause(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	clock := leasetest.NewClock()
	var target atomic.Pointer[string]
	first, second := start(t, 1), start(t, 2)
	target.Store(&first)
	c := redisconn.New(redisconn.Config{Prefix: "{ns}:", Timeout: 10 * time.Second, MaxAge: time.Minute,
		MaxSkew: time.Minute, Clock: clock,
		Servers: redisconn.NewServers(), Failed: func() {}, Options: &redis.Options{Addr: "redis:6379",
			Dialer: func(ctx context.Context, network, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, network, *target.Load())
			}}})
	go c.Run(func() {})
	defer c.Close()
	run := redisconn.NewScript(`return KEYS[1]`)
	key := func() string {
		got, err := c.Do(ctx, redisconn.NewRequest(run, []string{"node"}))
		require.NoError(t, err)
		return got.Word(0)
	}
	before := key()
	target.Store(&second)
	require.Equal(t, before, key(), "an open connection stays where it is")

	clock.Suspend(2 * time.Minute)
	after := key()
	require.NotEqual(t, before, after)
	require.Equal(t, "{ns}:"+c.Server()+":node", after)

	target.Store(&first)
	require.NoError(t, c.Verify(ctx))
	require.Equal(t, before, key(), "a check over a new connection finds the other server")
}

// A request for one run of a server is not sent to another one.
func TestRequestForAnotherRunIsNotSent(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c := redisconn.New(redisconn.Config{Prefix: "{ns}:", Timeout: 10 * time.Second, MaxAge: time.Minute,
		MaxSkew: time.Minute,
		Clock:   engine.SystemClock(), Servers: redisconn.NewServers(), Failed: func() {},
		Options: &redis.Options{Addr: start(t, 1)}})
	go c.Run(func() {})
	defer c.Close()
	set := redisconn.NewScript(`return redis.call('INCR', KEYS[1])`)
	_, err := c.At("another").Do(ctx, redisconn.NewRequest(set, []string{"n"}))
	require.ErrorIs(t, err, redisconn.ErrLife)
	got, err := c.At(c.Server()).Do(ctx, redisconn.NewRequest(set, []string{"n"}))
	require.NoError(t, err)
	require.EqualValues(t, 1, got.Int, "the first request was not executed")
}

// A request whose script is unknown to the server is answered even if the connection has
// become too old to send the text.
func TestUnknownScriptOnAnOldConnectionIsAnswered(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	clock := leasetest.NewClock()
	mini := miniredis.RunT(t)
	mini.Server().SetPreHook(func(c *server.Peer, command string, _ ...string) bool {
		switch command {
		case "INFO":
			c.WriteBulk("redis_version:7.4.0\r\nrole:master\r\nmaxmemory_policy:noeviction\r\nrun_id:1\r\nmaster_replid:1\r\n")
			return true
		case "EVALSHA":
			clock.Suspend(2 * time.Minute)
		}
		return false
	})
	c := redisconn.New(redisconn.Config{Prefix: "{ns}:", Timeout: 10 * time.Second, MaxAge: time.Minute,
		MaxSkew: time.Minute, Clock: clock,
		Servers: redisconn.NewServers(), Failed: func() {}, Options: &redis.Options{Addr: mini.Addr()}})
	go c.Run(func() {})
	defer c.Close()
	_, err := c.Do(ctx, redisconn.NewRequest(redisconn.NewScript(`return 1`), []string{"node"}))
	require.ErrorIs(t, err, redisconn.ErrDown)
}
