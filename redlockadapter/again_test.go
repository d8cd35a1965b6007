package redlockadapter_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/redlockadapter"
)

// deadlineOf is until when a node has a lock held (ms), and where that stands.
func deadlineOf(t *testing.T, lock string) (millis int64, before, after string) {
	t.Helper()
	before, rest, _ := strings.Cut(lock, " ")
	text, after, _ := strings.Cut(rest, " ")
	millis, err := strconv.ParseInt(text, 10, 64)
	require.NoError(t, err, "%q is not held", lock)
	return millis, before, after
}

// shorten takes half of its TTL off a lock on every node, as if that much time
// had passed. It returns the deadlines (ms).
func (f *fleet) shorten(t *testing.T, resource string) []int64 {
	t.Helper()
	f.awaitAll(t, resource, " ")
	deadlines := make([]int64, len(f.servers))
	for i := range f.servers {
		millis, before, after := deadlineOf(t, f.lockOn(t, i, resource))
		deadlines[i] = millis - (longTTL / 2).Milliseconds()
		c := redis.NewClient(&redis.Options{Addr: f.servers[i].Addr})
		defer c.Close()
		require.NoError(t, c.HSet(patient(t), hashOf(t, c), ":"+resource, fmt.Sprintf("%s %d %s", before, deadlines[i], after)).Err())
	}
	return deadlines
}

// requireLonger requires that a majority has a lock for as long as it had before
// it was shortened.
func (f *fleet) requireLonger(t *testing.T, resource string, than []int64) {
	t.Helper()
	longer := 0
	for i := range f.servers {
		if millis, _, _ := deadlineOf(t, f.lockOn(t, i, resource)); millis >= than[i]+(longTTL/2).Milliseconds() {
			longer++
		}
	}
	require.Greater(t, longer, len(f.servers)/2)
}

// Who asks again for what it was granted counts a full TTL from that question, so
// the nodes must give it.
func TestAskedAgainLastsAnew(t *testing.T) {
	f := longFleet(t)
	s := open(t, f.backend(t), longTTL)
	first, err := s.Acquire(patient(t), request(1, "a"))
	require.NoError(t, err)
	old := f.shorten(t, "a")
	before := lease.SystemClock().Now()
	again, err := s.Acquire(patient(t), request(1, "a"))
	require.NoError(t, err)
	require.Equal(t, first.Token, again.Token)
	require.GreaterOrEqual(t, again.Sent.Since(before), time.Duration(0))
	f.requireLonger(t, "a", old)
}

// What was granted and is lost is not granted again by asking.
func TestAskedAgainForWhatIsLost(t *testing.T) {
	f := longFleet(t)
	lost := make(chan error, 1)
	b := f.backend(t)
	s := openAs(t, b, lease.NewSessionID(), func(_ lease.Nonce, err error) { lost <- err })
	grant, err := s.Acquire(patient(t), request(1, "a"))
	require.NoError(t, err)
	require.NoError(t, f.backend(t).Break(patient(t), "a", grant.Token))
	_, err = s.Acquire(patient(t), request(1, "a"))
	require.ErrorIs(t, err, lease.ErrHeld)
	require.Len(t, lost, 1)
	require.ErrorIs(t, <-lost, lease.ErrTaken)
}

// scripted is one server on which scripts are called by hand.
type scripted struct {
	t      *testing.T
	client *redis.Client
}

func newScripted(t *testing.T, state string, locks ...any) *scripted {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: testserver.Redis(t).Addr})
	t.Cleanup(func() { c.Close() })
	require.NoError(t, c.HSet(context.Background(), "node", append([]any{"state", state}, locks...)...).Err())
	return &scripted{t, c}
}

func (s *scripted) run(name string, args ...any) string {
	s.t.Helper()
	text, err := redlockadapter.Script(name)
	require.NoError(s.t, err)
	reply, err := s.client.Eval(patient(s.t), text, []string{"node"}, args...).Result()
	require.NoError(s.t, err)
	return fmt.Sprint(reply)
}

func (s *scripted) get(key, field string) string {
	s.t.Helper()
	value, err := s.client.HGet(patient(s.t), key, field).Result()
	require.NoError(s.t, err)
	return value
}

// A node that is asked again by the same attempt gives the same token, and the
// TTL anew: to who holds alone, and to one who is in.
func TestANodeThatIsAskedAgain(t *testing.T) {
	s := newScripted(t, "1 0 100 0", ":a", "7", ":b", "7")
	later := func(before, after string) {
		t.Helper()
		x, _ := strconv.Atoi(before)
		y, _ := strconv.Atoi(after)
		require.Greater(t, y, x+50_000)
	}
	word := func(value string, n int) string { return strings.Fields(strings.TrimLeft(value, "&~!"))[n] }

	require.Equal(t, "8", s.run("acquire", 1, 100_000, ":a", "me\ninfo"))
	first := s.get("node", ":a")
	require.Equal(t, "8", s.run("acquire", 1, 200_000, ":a", "me\ninfo"))
	later(word(first, 1), word(s.get("node", ":a"), 1))

	require.Equal(t, "8", s.run("acquire", 1, 100_000, "*1  s", ":b", "me\ninfo"))
	s.run("release", "*1 0 next s 100000 8", ":b", "me\ninfo") // it stays in
	first = s.get("node:in:b", "sme")
	require.Equal(t, "8", s.run("acquire", 1, 200_000, "*1  s", ":b", "me\ninfo"))
	later(word(first, 0), word(s.get("node:in:b", "sme"), 0))
	require.Equal(t, "&8", s.get("node", ":b"), "no lock was taken for it")
}

// A node gives a lock only to the attempt that follows the one which has it, with
// the token that it has.
func TestANodeGivesOnlyWhatIsHeld(t *testing.T) {
	s := newScripted(t, "1 0 100 0", ":a", "7", ":b", "7")
	adopt := func(token, former string) string {
		return s.run("adopt", "1 100000 "+token, ":a", "new\ninfo", former+"\ninfo")
	}
	require.Equal(t, "taken", adopt("7", "old"), "it is free")
	require.Equal(t, "8", s.run("acquire", 1, 100_000, ":a", "old\ninfo"))
	held := s.get("node", ":a")
	require.Equal(t, "taken", adopt("8", "other"), "another one has it")
	require.Equal(t, "taken", adopt("7", "old"), "it has another token")
	require.Equal(t, "taken", adopt("9", "old"), "it has another token")
	require.Equal(t, "taken", s.run("adopt", "2 100000 8", ":a", ":b", "new\ninfo", "old\ninfo"), "not all of it is held")
	require.Equal(t, held, s.get("node", ":a"))
	require.Equal(t, "8", adopt("8", "old"))
	require.Equal(t, "8", adopt("8", "old"), "asked twice, the same answer")
	s.run("release", ":a", "old\ninfo")
	require.Equal(t, "ended", s.run("renew", "1 100000 8", ":a", "old\ninfo"))
	require.Contains(t, s.run("acquire", 1, 100_000, ":a", "third\ninfo"), "held")
	s.run("release", ":a", "new\ninfo")
	require.Equal(t, "ended", s.run("renew", "1 100000 8", ":a", "old\ninfo"), "it is free, but was given to another one")
	require.Equal(t, "ended", s.run("acquire", 1, 100_000, ":a", "old\ninfo"))
	require.Equal(t, "8", s.get("node", ":a"))
	require.NoError(t, s.client.HSet(patient(t), "node", "state", "1 0 - 0").Err())
	require.Equal(t, "empty", adopt("8", "old"))
}

// What a node accepts is above its floor, also if that was raised meanwhile.
func TestFloorBindsRaiseAndRenew(t *testing.T) {
	s := newScripted(t, "1 0 100 0", ":a", "7", ":b", "7")
	require.Equal(t, "8", s.run("acquire", 1, 100_000, ":a", "me\ninfo"))
	s.run("floor", "50")
	raise := func(to string) string { return s.run("raise", 1, "1 "+to, ":a", "me\ninfo") }
	require.Equal(t, "refused", raise("9"))
	require.Equal(t, "refused", raise("50"))
	require.Equal(t, "51", raise("51"))
	require.Equal(t, "51", s.run("renew", "1 100000 51", ":a", "me\ninfo"))

	// b is free: its holder may have it back only if nobody was told that no
	// token that small will come.
	require.Equal(t, "taken", s.run("renew", "1 100000 49", ":b", "me\ninfo"))
	require.Equal(t, "7", s.get("node", ":b"))
	require.Equal(t, "50", s.run("renew", "1 100000 50", ":b", "me\ninfo"))
}

// A renewal that arrives after the release, on a connection that was given up,
// does not take the lock back.
func TestALateRenewalTakesNothingBack(t *testing.T) {
	f := longFleet(t)
	couriers := f.interpose(t, "renew", 0, 1, 2)
	s := open(t, f.backend(t), longTTL)
	_, err := s.Acquire(patient(t), request(1, "a"))
	require.NoError(t, err)
	for _, c := range couriers {
		c.keep.Store(true)
	}
	_, err = s.Renew(patient(t))
	require.ErrorIs(t, err, lease.ErrUncertain)
	f.awaitLanes(t, s)
	require.NoError(t, s.Release(patient(t), 1))
	for i := range f.servers {
		f.awaitFree(t, i, "a")
	}
	for _, c := range couriers {
		require.Equal(t, 1, c.deliver(t))
	}
	_, err = open(t, f.backend(t), longTTL).Acquire(patient(t), request(2, "a"))
	require.NoError(t, err)
}

// awaitLanes waits until a session reaches every node again.
func (f *fleet) awaitLanes(t *testing.T, s lease.Session) {
	t.Helper()
	var clients []*redis.Client
	for _, server := range f.servers {
		c := redis.NewClient(&redis.Options{Addr: server.Addr})
		defer c.Close()
		clients = append(clients, c)
	}
	nonce := lease.Nonce(1000)
	require.Eventually(t, func() bool {
		nonce++
		name := fmt.Sprint("lane-", nonce)
		if _, err := s.Acquire(patient(t), request(nonce, fencing.Resource(name))); err != nil {
			return false
		}
		for _, c := range clients {
			if known, err := c.HExists(patient(t), hashOf(t, c), ":"+name).Result(); err != nil || !known {
				return false
			}
		}
		return true
	}, patience, time.Millisecond)
}

// awaitFree waits until a node has a lock free.
func (f *fleet) awaitFree(t *testing.T, node int, resource string) {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: f.servers[node].Addr})
	defer c.Close()
	require.Eventually(t, func() bool {
		lock, err := c.HGet(patient(t), hashOf(t, c), ":"+resource).Result()
		return err == nil && !strings.Contains(lock, " ")
	}, patience, time.Millisecond)
}
