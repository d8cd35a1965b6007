package redlockadapter_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/redlockadapter"
)

// What one node has prolonged the next majority does not know of.
func TestRenewalNeedsAMajority(t *testing.T) {
	f := startFleet(t, 3)
	f.config.MaxTTL, f.config.NodeTimeout = 10*time.Minute, patience
	s := open(t, f.init(t).backend(t), 10*time.Minute)
	_, err := s.Acquire(patient(t), request(1, "a"))
	require.NoError(t, err)
	for _, server := range f.servers[:2] {
		server.Stop()
	}
	failed, err := s.Renew(patient(t))
	require.True(t, err != nil || len(failed) == 1, "prolonged by one of three")
}

// oneNode is a node whose scripts are called by hand.
type oneNode struct {
	t      *testing.T
	client *redis.Client
}

func newOneNode(t *testing.T) oneNode {
	client := redis.NewClient(&redis.Options{Addr: testserver.Redis(t).Addr})
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	return oneNode{t, client}
}

// run is what a script answers first.
func (s oneNode) run(name string, args ...any) string {
	s.t.Helper()
	text, err := redlockadapter.Script(name)
	require.NoError(s.t, err)
	reply := s.client.Eval(patient(s.t), text, []string{"node"}, args...)
	if lines, err := reply.StringSlice(); err == nil {
		return lines[0]
	}
	line, err := reply.Text()
	require.NoError(s.t, err)
	return line
}

// Locks that an emptied node has forgotten may be held for one TTL more: until
// then it has no vote, whoever asks for it.
func TestAnEmptiedNodeIsKeptOut(t *testing.T) {
	s := newOneNode(t)
	require.Equal(t, "ok", s.run("join", "nonce"))
	require.Regexp(t, "^wait [0-9]+$", s.run("init", "nonce", 7, 100, time.Hour.Milliseconds(), "run", 1000))
	require.Equal(t, "ok", s.run("init", "nonce", 7, 100, 0, "run", 1000))
}

// Lua prints a large number as 4e+15.
func TestTokensKeepTheirDigits(t *testing.T) {
	s := newOneNode(t)
	require.Equal(t, "ok", s.run("join", "nonce"))
	require.Equal(t, "ok", s.run("init", "nonce", 7, "4000000000000000", 0, "run", 1000))
	require.Equal(t, "4000000000000001", s.run("acquire", 7, 60000, "*1 ", ":a", "one\ninfo"))
	require.Equal(t, "4000000000000005", s.run("raise", 7, "1 4000000000000005", ":a", "one\ninfo"))
	require.Equal(t, "refused", s.run("raise", 7, "1 4000000000000003", ":a", "one\ninfo"), "it would go back")
	require.Equal(t, "4000000000000005", s.run("renew", "1 60000 4000000000000005", ":a", "one\ninfo"))
	fields, err := s.client.HGetAll(patient(t), "node").Result()
	require.NoError(t, err)
	require.Regexp(t, "^4000000000000005 ", fields[":a"])
	require.Regexp(t, "^7 4000000000000000 40000000000000[0-9]+ 0$", fields["state"])
}

// With too few nodes that have data nothing is safe to do, however long one
// waits.
func TestALostMajorityStaysLost(t *testing.T) {
	f := startFleet(t, 3)
	f.config.MaxTTL, f.config.NodeTimeout = time.Second, time.Second
	b := f.init(t).backend(t)
	newTaker(t, b).take()
	for _, server := range f.servers[:2] {
		require.NoError(t, server.Wipe())
		require.NoError(t, server.Start())
	}
	over := func() bool {
		for _, s := range b.NodeStatuses(patient(t))[:2] {
			if s.Err != nil || !s.Empty || s.Quarantine > 0 {
				return false
			}
		}
		return true
	}
	require.Eventually(t, over, patience, 10*time.Millisecond, "their quarantine")
	next := open(t, f.backend(t), lease.MinTTL) // a process that looks at them anew
	_, err := next.Acquire(patient(t), request(1, "b"))
	require.ErrorIs(t, err, lease.ErrUnavailable)
	for _, s := range b.NodeStatuses(patient(t))[:2] {
		require.True(t, s.Empty || s.Err != nil, "%+v", s)
	}
}
