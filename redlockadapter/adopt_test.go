package redlockadapter_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/redlockadapter"
)

// longTTL is a TTL that does not run out while a busy machine runs a test.
const longTTL = time.Minute

// adopter is a session that can take over what another process was granted.
type adopter interface {
	Adopt(context.Context, lease.Request, fencing.Token) (lease.Grant, error)
}

// longFleet is three nodes for leases that do not run out, however slow they are.
func longFleet(t *testing.T) *fleet {
	t.Helper()
	f := startFleet(t, 3)
	f.config.MaxTTL, f.config.NodeTimeout = longTTL, longTTL/2
	return f.init(t)
}

// openAs opens a session that other processes serve too.
func openAs(t *testing.T, b lease.Backend, id lease.SessionID, lost func(lease.Nonce, error)) lease.Session {
	t.Helper()
	s, err := b.Open(patient(t), lease.SessionConfig{ID: id, TTL: longTTL, Clock: lease.SystemClock(), Lost: lost})
	require.NoError(t, err)
	return s
}

// handOver is a session that two processes serve, one after the other: the first
// was granted "a" with nonce 1. held fails the test if another one gets the lock.
func handOver(t *testing.T, f *fleet, lost func(lease.Nonce, error)) (first *redlockadapter.Backend, one, two lease.Session, grant lease.Grant, held func()) {
	t.Helper()
	first, err := redlockadapter.New(patient(t), f.config)
	require.NoError(t, err)
	t.Cleanup(func() { _ = first.Close(context.Background()) })
	id := lease.NewSessionID()
	one, two = openAs(t, first, id, lost), openAs(t, f.backend(t), id, nil)
	grant, err = one.Acquire(patient(t), request(1, "a"))
	require.NoError(t, err)
	other, nonce := open(t, f.backend(t), longTTL), lease.Nonce(0)
	return first, one, two, grant, func() {
		t.Helper()
		nonce++
		_, err := other.Acquire(patient(t), request(nonce, "a"))
		require.ErrorIs(t, err, lease.ErrHeld)
	}
}

// Two processes that serve one session name their attempts differently, so none
// of them gets, or releases, what the other one was granted.
func TestProcessesShareNoNames(t *testing.T) {
	_, _, two, _, held := handOver(t, longFleet(t), nil)
	_, err := two.Acquire(patient(t), request(1, "a"))
	require.ErrorIs(t, err, lease.ErrHeld)
	require.NoError(t, two.Release(patient(t), 1))
	held()
}

// What was taken over is the same grant, and the former process has no part in it
// any more, whatever it does.
func TestAdoptedGrantIsTheOtherProcessesNoMore(t *testing.T) {
	lost := make(chan error, 1)
	first, one, two, grant, held := handOver(t, longFleet(t), func(_ lease.Nonce, err error) { lost <- err })
	found, err := two.(adopter).Adopt(patient(t), request(1, "a"), fencing.None)
	require.NoError(t, err)
	require.Equal(t, grant.Token, found.Token)
	held()
	_, err = one.Renew(patient(t))
	require.NoError(t, err)
	select {
	case err := <-lost:
		require.ErrorIs(t, err, lease.ErrTaken, "the former process is told, and releases what it has left")
	default:
		t.Fatal("the former process has it still")
	}
	held()
	require.NoError(t, one.Release(patient(t), 1))
	require.NoError(t, first.Close(patient(t)))
	held()
	failed, err := two.Renew(patient(t))
	require.NoError(t, err)
	require.Empty(t, failed)
	again, err := two.Acquire(patient(t), request(1, "a"))
	require.NoError(t, err)
	require.Equal(t, grant.Token, again.Token)
}

// A set of locks is taken over as a whole, and released as one.
func TestAdoptedSet(t *testing.T) {
	f := longFleet(t)
	id := lease.NewSessionID()
	set := request(1, "a")
	set.Resources = []fencing.Resource{"a", "b"}
	grant, err := openAs(t, f.backend(t), id, nil).Acquire(patient(t), set)
	require.NoError(t, err)
	two := openAs(t, f.backend(t), id, nil)
	found, err := two.(adopter).Adopt(patient(t), set, grant.Token)
	require.NoError(t, err)
	require.Equal(t, grant.Token, found.Token)
	require.NoError(t, two.Release(patient(t), 1))
	other := open(t, f.backend(t), longTTL)
	for nonce, name := range []fencing.Resource{"a", "b"} {
		_, err := other.Acquire(patient(t), request(lease.Nonce(nonce+1), name))
		require.NoError(t, err)
	}
}

// What was taken over lasts a full TTL from then, on the nodes too.
func TestAdoptedGrantLastsAnew(t *testing.T) {
	f := longFleet(t)
	_, _, two, _, _ := handOver(t, f, nil)
	old := f.shorten(t, "a")
	_, err := two.(adopter).Adopt(patient(t), request(1, "a"), fencing.None)
	require.NoError(t, err)
	f.requireLonger(t, "a", old)
}

// Nothing is taken over with another token than the caller has, nor asked for
// anew when it is gone.
func TestAdoptionIsOfOneToken(t *testing.T) {
	f := longFleet(t)
	_, one, two, grant, held := handOver(t, f, nil)
	_, err := two.(adopter).Adopt(patient(t), request(1, "a"), grant.Token+1)
	require.ErrorIs(t, err, lease.ErrNotHeld)
	_, err = two.(adopter).Adopt(patient(t), request(2, "a"), grant.Token)
	require.ErrorIs(t, err, lease.ErrNotHeld, "another attempt")
	failed, err := one.Renew(patient(t))
	require.NoError(t, err)
	require.Empty(t, failed, "it is the other one's as before")
	held()
	require.NoError(t, one.Release(patient(t), 1))
	_, err = two.(adopter).Adopt(patient(t), request(1, "a"), fencing.None)
	require.ErrorIs(t, err, lease.ErrNotHeld)
	_, err = open(t, f.backend(t), longTTL).Acquire(patient(t), request(9, "a"))
	require.NoError(t, err, "nobody holds it")
}

// An adoption that fails releases nothing: the other process may hold on.
func TestFailedAdoptionReleasesNothing(t *testing.T) {
	f := longFleet(t)
	id := lease.NewSessionID()
	one := openAs(t, f.backend(t), id, nil)
	_, err := one.Acquire(patient(t), request(1, "a"))
	require.NoError(t, err)
	couriers := f.interpose(t, "adopt", 0, 1)
	second, err := redlockadapter.New(patient(t), f.config)
	require.NoError(t, err)
	two := openAs(t, second, id, nil)
	for _, c := range couriers {
		c.keep.Store(true)
	}
	_, err = two.(adopter).Adopt(patient(t), request(1, "a"), fencing.None)
	require.ErrorIs(t, err, lease.ErrUncertain)
	require.NoError(t, second.Close(patient(t)), "what it had to send is sent by then")
	require.Contains(t, f.lockOn(t, 2, "a"), id.String(), "the node that it reached has kept the lock")
	failed, err := one.Renew(patient(t))
	require.NoError(t, err)
	require.Empty(t, failed, "the other process has a majority still")
}

// An adoption that arrives after the release of what was adopted changes nothing.
func TestALateAdoptionTakesNothing(t *testing.T) {
	f := longFleet(t)
	id := lease.NewSessionID()
	_, err := openAs(t, f.backend(t), id, nil).Acquire(patient(t), request(1, "a"))
	require.NoError(t, err)
	f.awaitAll(t, "a", id.String())
	before := f.lockOn(t, 0, "a")
	late := f.interpose(t, "adopt", 0)[0]
	two := openAs(t, f.backend(t), id, nil)
	late.keep.Store(true)
	_, err = two.(adopter).Adopt(patient(t), request(1, "a"), fencing.None)
	require.NoError(t, err)
	require.NoError(t, two.Release(patient(t), 1))
	f.awaitTomb(t, 0)
	require.Equal(t, 1, late.deliver(t))
	require.Equal(t, before, f.lockOn(t, 0, "a"))
}

// awaitAll waits until every node has something in a lock.
func (f *fleet) awaitAll(t *testing.T, resource, text string) {
	t.Helper()
	for i := range f.servers {
		c := redis.NewClient(&redis.Options{Addr: f.servers[i].Addr})
		defer c.Close()
		require.Eventually(t, func() bool {
			lock, err := c.HGet(patient(t), hashOf(t, c), ":"+resource).Result()
			return err == nil && strings.Contains(lock, text)
		}, patience, time.Millisecond)
	}
}

// awaitTomb waits until a node has a tombstone.
func (f *fleet) awaitTomb(t *testing.T, node int) {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: f.servers[node].Addr})
	defer c.Close()
	require.Eventually(t, func() bool {
		tombs, err := c.Keys(patient(t), "{leased}:tomb:*").Result()
		return err == nil && len(tombs) > 0
	}, patience, time.Millisecond)
}
