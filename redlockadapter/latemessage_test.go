package redlockadapter_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

func dialer(to string) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, network, to)
	}
}

// An acquire that arrives after its release, over another connection, is refused.
func TestLateAcquireIsRefused(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 3).init(t)
	proxies := f.withProxies(t, "acquire", 0, 1)
	b, session := f.backend(t), engine.NewSessionID()
	for _, c := range proxies {
		c.keep.Store(true)
	}
	_, err := b.Acquire(testContext(t), session, longTTL, request(1, "a"))
	require.ErrorIs(t, err, engine.ErrUnavailable, "two of three nodes did not answer")
	for i, c := range proxies {
		c.keep.Store(false)
		waitFor(t, func() bool { return f.record(t, i, "a")["released"] != "" }, "the node has executed the release")
		require.Equal(t, 1, c.deliver(t))
		require.Empty(t, f.record(t, i, "a")["nonce"])
	}
	require.Empty(t, f.record(t, 2, "a")["nonce"], "the attempt was withdrawn")
	held, err := b.Acquire(testContext(t), session, longTTL, request(2, "a"))
	require.NoError(t, err)
	require.NoError(t, b.Release(testContext(t), held))
}

// An acquire that arrives after a renewal does not overwrite the newer metadata.
func TestLateAcquireKeepsNewerMetadata(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 3).init(t)
	late := f.withProxies(t, "acquire", 0)[0]
	b := f.backend(t)
	late.keep.Store(true)
	held, err := b.Acquire(testContext(t), engine.NewSessionID(), longTTL, request(1, "a"))
	require.NoError(t, err)
	waitFor(t, func() bool {
		late.mu.Lock()
		defer late.mu.Unlock()
		return len(late.kept) == 1
	}, "the acquire is on its way")
	held.Metadata = map[string]string{"done": "40%"}
	waitFor(t, func() bool {
		_ = b.Renew(testContext(t), []Held{held})
		return strings.Contains(f.record(t, 0, "a")["details"], "40%")
	}, "a renewal has reached the node over a new connection")
	require.Equal(t, 1, late.deliver(t))
	require.Contains(t, f.record(t, 0, "a")["details"], "40%")
	require.Equal(t, held.Name, f.record(t, 0, "a")["nonce"])
}

// A renewal that arrives after the release is refused.
func TestLateRenewalIsRefused(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 3).init(t)
	proxies := f.withProxies(t, "renew", 0, 1)
	b, other := f.backend(t), f.backend(t)
	held, err := b.Acquire(testContext(t), engine.NewSessionID(), longTTL, request(1, "a"))
	require.NoError(t, err)
	for _, c := range proxies {
		c.keep.Store(true)
	}
	require.ErrorIs(t, b.Renew(testContext(t), []Held{held})[0], engine.ErrUncertain)
	if err := b.Release(testContext(t), held); err != nil {
		require.ErrorIs(t, err, engine.ErrUncertain, "the connections were closed")
	}
	for i, c := range proxies {
		waitFor(t, func() bool { return f.record(t, i, "a")["released"] == held.Name }, "the release is sent again")
		require.Equal(t, 1, c.deliver(t))
		require.Empty(t, f.record(t, i, "a")["nonce"])
		c.keep.Store(false)
	}
	require.ErrorIs(t, b.Renew(testContext(t), []Held{held})[0], engine.ErrLost, "the caller cannot renew it either")
	grant, err := other.Acquire(testContext(t), engine.NewSessionID(), longTTL, request(1, "a"))
	require.NoError(t, err)
	require.True(t, grant.Token.Newer(held.Token))
}

// A script whose reply is lost is not sent again, since a copy could arrive after the
// release. Its vote does not count.
func TestScriptsAreSentOnce(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 3).init(t)
	proxies := f.withProxies(t, "acquire", 0, 1)
	b, session := f.backend(t), engine.NewSessionID()
	for _, c := range proxies {
		c.swallow.Store(true)
	}
	_, err := b.Acquire(testContext(t), session, longTTL, request(1, "a"))
	require.ErrorIs(t, err, engine.ErrUnavailable)
	for i, c := range proxies {
		require.EqualValues(t, 1, c.passed.Load())
		c.swallow.Store(false)
		waitFor(t, func() bool { r := f.record(t, i, "a"); return r["token"] != "" && r["nonce"] == "" },
			"the accepted attempt is released over a new connection")
	}
	_, err = b.Acquire(testContext(t), session, longTTL, request(2, "a"))
	require.NoError(t, err)
}

// A paused node executes the requests that it was sent meanwhile. The attempt is
// withdrawn after that.
func TestPausedNodeResumes(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 3).init(t)
	b, session := f.backend(t), engine.NewSessionID()
	for _, s := range f.servers[:2] {
		s.Pause()
	}
	_, err := b.Acquire(testContext(t), session, longTTL, request(1, "a"))
	require.ErrorIs(t, err, engine.ErrUnavailable)
	require.ErrorContains(t, err, "2 are needed")
	for _, s := range f.servers[:2] {
		s.Resume()
	}
	waitFor(t, func() bool {
		for i := range f.servers {
			if f.record(t, i, "a")["nonce"] != "" {
				return false
			}
		}
		return true
	})
	nonce := engine.Nonce(1)
	waitFor(t, func() bool {
		nonce++
		_, err = b.Acquire(testContext(t), session, longTTL, request(nonce, "a"))
		return err == nil
	})
}

// A server that hung executes acquires when it continues, long after they were released elsewhere. The process sends
// the releases until the server confirms them, so the locks are free on that node soon.
func TestHungNodeGetsReleases(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newVirtualFleet(t, 3).init(t)
		b, session := f.backend(t), engine.NewSessionID()
		hung := f.nodes[0]
		hung.setDelay(5 * time.Second)
		var names []fencing.Resource
		for i := range 10 {
			names = append(names, fencing.Resource(fmt.Sprint("lock-", i)))
			held, err := b.Acquire(t.Context(), session, virtualTTL, request(engine.Nonce(i+1), names[i]))
			require.NoError(t, err)
			require.NoError(t, b.Release(t.Context(), held))
		}
		advance(5 * time.Second)
		hung.setDelay(0)
		require.Positive(t, hung.countAcquires(), "it has executed an acquire")
		advance(virtualTTL / 2)
		for _, name := range names {
			require.Empty(t, hung.mini.HGet("{leased}:"+hung.server()+":lock:"+string(name), "nonce"), name)
		}
	})
}

// A release that the Redis user may not make is not sent for minutes. Neither was the acquire allowed.
func TestForbiddenReleaseIsNotRepeated(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newVirtualFleet(t, 3).init(t)
		b, k := f.backend(t), newLocker(t, f.config)
		var releases atomic.Int32
		for _, n := range f.nodes {
			n.onRelease(func() error {
				releases.Add(1)
				return errors.New("NOPERM No permissions to access a key")
			})
		}
		k.acquire(b)
		advance(time.Minute)
		require.LessOrEqual(t, releases.Load(), int32(2*len(f.nodes)))
	})
}

// A node that missed a break and got the holder's release does not change how the lease ended.
func TestBrokenLeaseEndsBroken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newVirtualFleet(t, 3).init(t)
		b, session := f.backend(t), engine.NewSessionID()
		held, err := b.Acquire(t.Context(), session, virtualTTL, request(1, "a"))
		require.NoError(t, err)
		require.NoError(t, b.Break(t.Context(), "a", held.Token))
		synctest.Wait() // until all nodes have received it
		for _, n := range f.nodes[:2] {
			n.mini.HDel("{leased}:"+n.server()+":lock:a", "broken")
		}
		how, err := b.Ended(t.Context(), "a", session, 1)
		require.NoError(t, err)
		require.Equal(t, "broken", how)
	})
}

// A break that a node could not receive is repeated as a break.
func TestBreakIsRepeated(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newVirtualFleet(t, 3).init(t)
		b, session := f.backend(t), engine.NewSessionID()
		held, err := b.Acquire(t.Context(), session, virtualTTL, request(1, "a"))
		require.NoError(t, err)
		node := f.nodes[0]
		node.setDelay(3 * time.Second)
		require.NoError(t, b.Renew(t.Context(), []Held{held})[0])
		advance(time.Second) // the connection ends
		node.refuse(true)
		node.setDelay(0)
		require.NoError(t, b.Break(t.Context(), "a", held.Token))
		advance(time.Second)
		key := "{leased}:" + node.server() + ":lock:a"
		require.Empty(t, node.mini.HGet(key, "released"))
		node.refuse(false)
		advance(virtualTTL)
		require.Equal(t, held.Name, node.mini.HGet(key, "broken"))
	})
}
