package redlockadapter_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/redlockadapter"
)

// Any process can renew and release a lease with what Acquire returned, and read all of
// it from the nodes.
func TestAnyProcessRenewsAndReleasesALease(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 5).init(t)
	ctx := testContext(t)
	first, second := f.backend(t), f.backend(t)
	session := engine.NewSessionID()
	r := request(7, "a", "b", "c")
	r.Holder, r.Metadata = "worker 1", map[string]string{"job": `"7"`, "host": "x y"}
	held, err := first.Acquire(ctx, session, longTTL, r)
	require.NoError(t, err)
	require.True(t, held.Token.Valid())
	require.Equal(t, session, held.Session)
	require.Equal(t, engine.Nonce(7), held.Nonce)

	for _, name := range r.Resources {
		found, err := second.Find(ctx, name, held.Token)
		require.NoError(t, err)
		require.Equal(t, held, found)
	}
	_, err = second.Find(ctx, "a", held.Token+1)
	require.ErrorIs(t, err, engine.ErrNotHeld)
	_, err = second.Find(ctx, "d", held.Token)
	require.ErrorIs(t, err, engine.ErrNotHeld)
	status, err := second.Inspect(ctx, "c")
	require.NoError(t, err)
	require.Equal(t, "worker 1", status.Holders[0].Holder)
	require.Equal(t, r.Metadata, status.Holders[0].Metadata)
	require.Equal(t, session, status.Holders[0].Session)
	require.Positive(t, status.Holders[0].TTL)
	require.LessOrEqual(t, status.Holders[0].TTL, longTTL)

	require.NoError(t, first.Close(ctx))
	require.NoError(t, second.Renew(ctx, []Held{held})[0])
	require.NoError(t, second.Release(ctx, held))
	require.NoError(t, second.Release(ctx, held), "released twice")
	for _, name := range r.Resources {
		_, err = second.Find(ctx, name, held.Token)
		require.ErrorIs(t, err, engine.ErrNotHeld)
	}
	next, err := second.Acquire(ctx, session, longTTL, request(8, "a"))
	require.NoError(t, err)
	require.True(t, next.Token.Newer(held.Token))
	require.NoError(t, second.Release(ctx, held), "a late release")
	requireHolder(t, second, "a", next.Token)
}

// acquireOnAllNodes acquires the lock "a", and waits until all nodes have its token: later, nobody tells them about it.
func (f *fleet) acquireOnAllNodes(t *testing.T, b *redlockadapter.Backend) Held {
	t.Helper()
	held, err := b.Acquire(testContext(t), engine.NewSessionID(), longTTL, request(1, "a"))
	require.NoError(t, err)
	for node := range f.servers {
		waitFor(t, func() bool { return f.record(t, node, "a")["token"] == held.Token.String() })
	}
	return held
}

// A lease can be on a bare quorum of the nodes. While one of these does not answer, the others cannot tell that nobody
// holds the lock: a caller that was told so would give its lease up.
func TestLeaseOnABareQuorumIsNotDenied(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 3).init(t)
	ctx := testContext(t)
	first, second := f.backend(t), f.backend(t)
	held := f.acquireOnAllNodes(t, first)
	life, err := f.client(t, 0).Get(ctx, "{leased}:life").Result()
	require.NoError(t, err)
	require.NoError(t, f.client(t, 0).Del(ctx, "{leased}:"+life+":lock:a").Err())
	f.servers[1].Kill()
	perhaps, err := second.Find(ctx, "a", held.Token)
	require.ErrorIs(t, err, engine.ErrUnavailable)
	require.Equal(t, held.Name, perhaps.Name)
	require.NotErrorIs(t, err, engine.ErrNotHeld)
	_, err = second.Find(ctx, "a", held.Token+1)
	require.ErrorIs(t, err, engine.ErrNotHeld, "no node has this one")
	require.NoError(t, first.Renew(ctx, []Held{held})[0])
	_, err = second.Find(ctx, "a", held.Token)
	require.NoError(t, err)
}

// While a node is silent, an attempt that was not granted can have the token of a lease on another node. It does not
// hide the lease: a caller that finds the attempt of another user would tell the holder that nothing is held.
func TestAbandonedAttemptHidesNoLease(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 3).init(t)
	ctx := testContext(t)
	first, second := f.backend(t), f.backend(t)
	held := f.acquireOnAllNodes(t, first)
	life, err := f.client(t, 0).Get(ctx, "{leased}:life").Result()
	require.NoError(t, err)
	require.NoError(t, f.client(t, 0).HSet(ctx, "{leased}:"+life+":lock:a", "nonce", held.Name+".other").Err())
	f.servers[1].Kill()
	perhaps, err := second.Find(ctx, "a", held.Token)
	require.ErrorIs(t, err, engine.ErrUnavailable)
	require.Empty(t, perhaps)
}

// A process that ended in the middle of an attempt can leave it on fewer nodes than a quorum. Another process that
// repeats the attempt finds it there and releases it: otherwise the attempt would be refused by itself.
func TestPartialAttemptIsFound(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 3).init(t)
	ctx := testContext(t)
	first, second := f.backend(t), f.backend(t)
	session, again := engine.NewSessionID(), request(1, "a")
	held, err := first.Acquire(ctx, session, longTTL, again)
	require.NoError(t, err)
	for node := range 3 { // later, nobody tells them about the lease
		waitFor(t, func() bool { return f.record(t, node, "a")["nonce"] == held.Name })
	}
	found, err := second.Attempts(ctx, "a", session, again.Nonce)
	require.NoError(t, err)
	require.Len(t, found, 1)
	require.Equal(t, held.Token, found[0].Token)
	for node := range 2 {
		life, err := f.client(t, node).Get(ctx, "{leased}:life").Result()
		require.NoError(t, err)
		require.NoError(t, f.client(t, node).Del(ctx, "{leased}:"+life+":lock:a").Err())
	}
	found, err = second.Attempts(ctx, "a", session, again.Nonce+1)
	require.NoError(t, err)
	require.Empty(t, found, "of another attempt")
	found, err = second.Attempts(ctx, "a", session, again.Nonce)
	require.NoError(t, err)
	require.Len(t, found, 1)
	require.Equal(t, fencing.None, found[0].Token, "nobody holds it")
	require.NoError(t, second.Release(ctx, found[0]))
	require.Empty(t, f.record(t, 2, "a")["nonce"])
}

// A process that ended in the middle of an attempt left it on one node, and another node is down. A copy of the attempt
// is refused until it has released that try. It does not release the try of a process that is slow.
func TestAbandonedTryIsReleased(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newVirtualFleet(t, 3).init(t)
		b, other, ctx := f.backend(t), f.backend(t), t.Context()
		held := acquireAlone(t, b, "a")
		advance(100 * time.Millisecond)
		f.forget(0, "a")
		f.nodes[1].stop()
		_, err := other.Acquire(ctx, held.Session, virtualTTL, request(held.Nonce, "a"))
		require.ErrorIs(t, err, engine.ErrHeld)
		tries, err := other.Attempts(ctx, "a", held.Session, held.Nonce)
		require.NoError(t, err)
		released, err := other.ReleaseAbandoned(ctx, tries)
		require.NoError(t, err)
		require.True(t, released)
		_, err = other.Acquire(ctx, held.Session, virtualTTL, request(held.Nonce, "a"))
		require.NoError(t, err)
	})
	synctest.Test(t, func(t *testing.T) {
		f := newVirtualFleet(t, 3).init(t)
		one, late := f.stoppable(100 * time.Millisecond)
		slow, other, ctx := one.backend(t), f.backend(t), t.Context()
		lock := f.askedFirst(t, other, 0, 1)
		f.forget(0, string(lock)) // its token differs from that of the other node
		for more := fencing.Resource("b"); acquireAlone(t, other, more).Token < 100; more += "b" {
		}
		late.Store(0b111)
		session := engine.NewSessionID()
		granted := make(chan Held, 1)
		go func() {
			held, _ := slow.Acquire(ctx, session, virtualTTL, request(1, lock))
			granted <- held
		}()
		advance(time.Millisecond)
		tries, err := other.Attempts(ctx, lock, session, 1)
		require.NoError(t, err)
		require.Len(t, tries, 1)
		require.Equal(t, fencing.None, tries[0].Token)
		released, err := other.ReleaseAbandoned(ctx, tries)
		require.NoError(t, err)
		require.False(t, released)
		held := <-granted
		require.True(t, held.Token.Valid())
		requireHolder(t, other, lock, held.Token)
	})
}

// forget removes the record of a lock from a node.
func (f *virtualFleet) forget(node int, lock string) {
	mini := f.nodes[node].mini
	life, _ := mini.Get("{leased}:life")
	mini.Del("{leased}:" + life + ":lock:" + lock)
}

// stoppable returns the fleet of a process that gets the answers of nodes late, one bit each.
func (f *virtualFleet) stoppable(delay time.Duration) (one *virtualFleet, nodes *atomic.Uint64) {
	nodes = new(atomic.Uint64)
	copied := *f
	copied.config.Nodes = nil
	for i, n := range f.nodes {
		late := func() time.Duration {
			if nodes.Load()>>i&1 == 1 {
				return delay
			}
			return 0
		}
		dial := func(context.Context, string, string) (net.Conn, error) {
			conn, err := n.connect()
			if err != nil {
				return nil, err
			}
			client, remote := net.Pipe()
			go forward(remote, conn, n.currentDelay)
			go forward(conn, remote, late)
			return client, nil
		}
		copied.config.Nodes = append(copied.config.Nodes, &redis.Options{Addr: n.name, Dialer: dial})
	}
	return &copied, nodes
}

// A process is stopped while the nodes accept its attempt. Another process finds the attempt granted, and answers its
// caller. The first one continues and withdraws the attempt, which does not end the lease.
func TestFoundLeaseOutlivesTheStoppedProcess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newVirtualFleet(t, 3).init(t)
		one, late := f.stoppable(time.Second)
		stopped, other, ctx := one.backend(t), f.backend(t), t.Context()
		late.Store(0b111)
		withdrawn := make(chan error, 1)
		go func() {
			_, err := stopped.Acquire(ctx, engine.NewSessionID(), virtualTTL, request(1, "a"))
			withdrawn <- err
		}()
		advance(time.Millisecond)
		held, err := other.Find(ctx, "a", holderOf(t, other, "a"))
		require.NoError(t, err)
		require.NoError(t, other.Renew(ctx, []Held{held})[0])
		require.ErrorIs(t, <-withdrawn, engine.ErrUnavailable)
		late.Store(0)
		advance(5 * time.Second)
		require.NoError(t, other.Renew(ctx, []Held{held})[0])
		requireHolder(t, other, "a", held.Token)
		require.NoError(t, other.Release(ctx, held))
		requireHolder(t, other, "a", fencing.None)
	})
}

// A process withdraws a lease that it was granted and has told nobody of. That ends the lease, unless another process
// has renewed it, and lets a waiter of this process go on.
func TestWithdrawKeepsARenewedLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newVirtualFleet(t, 3).init(t)
		b, other, ctx := f.backend(t), f.backend(t), t.Context()
		held := acquireAlone(t, b, "a")
		found, err := other.Find(ctx, "a", held.Token)
		require.NoError(t, err)
		require.NoError(t, other.Renew(ctx, []Held{found})[0])
		require.NoError(t, b.Withdraw(ctx, held))
		require.NoError(t, other.Renew(ctx, []Held{found})[0])
		requireHolder(t, other, "a", held.Token)
		require.NoError(t, other.Release(ctx, found))

		held = acquireAlone(t, b, "a")
		waiting := make(chan error, 1)
		go func() {
			r := request(2, "a")
			r.Wait = true
			_, err := b.Acquire(ctx, engine.NewSessionID(), virtualTTL, r)
			waiting <- err
		}()
		synctest.Wait()
		require.NoError(t, b.Withdraw(ctx, held))
		advance(time.Second)
		require.Len(t, waiting, 1)
		require.ErrorIs(t, other.Renew(ctx, []Held{held})[0], engine.ErrTaken)
	})
}

// askedFirst returns a lock whose attempts ask these nodes first.
func (f *virtualFleet) askedFirst(t testing.TB, b *redlockadapter.Backend, nodes ...int) fencing.Resource {
	t.Helper()
	for lock := fencing.Resource("a"); ; lock += "a" {
		held := acquireAlone(t, b, lock)
		asked := f.holders(held)
		require.NoError(t, b.Release(t.Context(), held))
		if slices.Equal(asked, nodes) {
			return lock
		}
	}
}

// A process gets one of the two votes for its attempt late. Another process finds the attempt granted, and renews the
// lease. The third node has accepted larger tokens, for other locks. It gives the lease no second token, whether the
// first process asks it before the renewal or after it.
func TestFoundLeaseKeepsItsToken(t *testing.T) {
	t.Parallel()
	for name, pause := range map[string]time.Duration{"asked before": 150 * time.Millisecond, "asked after": 0} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newVirtualFleet(t, 3).init(t)
				one, late := f.stoppable(time.Second)
				stopped, other, ctx := one.backend(t), f.backend(t), t.Context()
				lock := f.askedFirst(t, other, 0, 1)
				for busy := fencing.Resource("b"); acquireAlone(t, other, busy).Token < 100; busy += "b" {
				}
				late.Store(0b010)
				type answer struct {
					held Held
					err  error
				}
				answered := make(chan answer, 1)
				go func() {
					held, err := stopped.Acquire(ctx, engine.NewSessionID(), virtualTTL, request(1, lock))
					answered <- answer{held, err}
				}()
				advance(time.Millisecond + pause)
				held, err := other.Find(ctx, lock, holderOf(t, other, lock))
				require.NoError(t, err)
				require.NoError(t, other.Renew(ctx, []Held{held})[0])
				if got := <-answered; got.err == nil {
					require.Equal(t, held.Token, got.held.Token)
				} else {
					require.ErrorIs(t, got.err, engine.ErrHeld)
				}
				require.Equal(t, held.Token.String(), f.field(2, string(lock), "token"))
				late.Store(0)
				advance(time.Second)
				require.NoError(t, other.Renew(ctx, []Held{held})[0])
				requireHolder(t, other, lock, held.Token)
			})
		})
	}
}

// A lease without a name was never granted, so its release needs no node.
func TestReleaseOfALeaseThatWasNotGranted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newVirtualFleet(t, 3).init(t)
		b := f.backend(t)
		for _, n := range f.nodes {
			n.stop()
		}
		require.NoError(t, b.Release(t.Context(), Held{Session: engine.NewSessionID(), Nonce: 1,
			Resources: []fencing.Resource{"a"}, TTL: virtualTTL}))
	})
}

// Every process can read how a lease ended.
func TestEndedReportsTheCause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newVirtualFleet(t, 3).init(t)
		b, other, ctx := f.backend(t), f.backend(t), t.Context()
		released, broken, expired := acquireAlone(t, b, "released"), acquireAlone(t, b, "broken"),
			acquireAlone(t, b, "expired")
		require.NoError(t, b.Release(ctx, released))
		require.ErrorIs(t, other.Break(ctx, "broken", broken.Token+1), engine.ErrNotHeld)
		require.NoError(t, other.Break(ctx, "broken", broken.Token))
		require.ErrorIs(t, other.Break(ctx, "broken", broken.Token), engine.ErrNotHeld, "broken twice")
		require.ErrorIs(t, b.Renew(ctx, []Held{broken})[0], engine.ErrTaken)
		advance(virtualTTL)
		requireHolder(t, other, "expired", fencing.None)
		for want, held := range map[string]Held{"released": released, "broken": broken, "expired": expired} {
			cause, err := other.Ended(ctx, held.Resources[0], held.Session, held.Nonce)
			require.NoError(t, err)
			require.Equal(t, want, cause)
		}
	})
}

// Inspect returns the waiters of this process and of others.
func TestInspectShowsWaiters(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newVirtualFleet(t, 3).init(t)
		b, other := f.backend(t), f.backend(t)
		began := time.Now()
		held := acquireAlone(t, b, "a")
		ctx, cancel := context.WithCancel(t.Context())
		var waiting sync.WaitGroup
		for i, holder := range []string{"first of the other", "second of the other", "mine"} {
			process := other
			if i == 2 {
				process = b
			}
			r := request(1, "a")
			r.Wait, r.Holder = true, holder
			waiting.Go(func() {
				_, err := process.Acquire(ctx, engine.NewSessionID(), virtualTTL, r)
				require.ErrorIs(t, err, context.Canceled)
			})
			advance(10 * time.Millisecond)
		}
		names := func() (all []string) {
			status, err := b.Inspect(t.Context(), "a")
			require.NoError(t, err)
			for _, w := range status.Waiters {
				all = append(all, w.Holder)
			}
			return all
		}
		advance(time.Second)
		require.NoError(t, b.Renew(t.Context(), []Held{held})[0])
		require.Equal(t, []string{"mine", "first of the other"}, names(),
			"only the first waiter of another process is reported")
		list, err := b.List(t.Context(), "", "", 10)
		require.NoError(t, err)
		require.Len(t, list, 1)
		require.Len(t, list[0].Waiters, 2)
		granted := list[0].Holders[0].Since
		require.Less(t, granted.Sub(began), 10*time.Millisecond, "a renewal keeps the time of the grant")
		require.Equal(t, 20*time.Millisecond, list[0].Waiters[0].Since.Sub(granted).Round(10*time.Millisecond))
		require.Equal(t, 0*time.Millisecond, list[0].Waiters[1].Since.Sub(granted).Round(10*time.Millisecond))
		elsewhere, err := other.Inspect(t.Context(), "a")
		require.NoError(t, err)
		require.Equal(t, granted, elsewhere.Holders[0].Since)
		cancel()
		waiting.Wait()
	})
}

// List returns the locks on the nodes, ordered by name, whatever characters the names
// contain.
func TestListReadsTheNodes(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 3)
	f.config.MaxTTL = time.Hour
	f.init(t)
	b, ctx := f.backend(t), testContext(t)
	const count = 2000
	var names []fencing.Resource
	for i := range count {
		names = append(names, fencing.Resource(fmt.Sprintf("many/%04d", i)))
	}
	odd := []fencing.Resource{`odd/*`, `odd/?`, `odd/[a-z]`, `odd/\x`, `odd/:lock:x`, `odd/{b}`, `odd/ü`, `odd/%d+`,
		`odda`}
	slots, done := make(chan struct{}, 64), sync.WaitGroup{}
	for i, name := range append(odd, names...) {
		slots <- struct{}{}
		done.Go(func() {
			defer func() { <-slots }()
			if _, err := b.Acquire(ctx, engine.NewSessionID(), time.Hour, request(engine.Nonce(i+1), name)); err != nil {
				t.Error(name, err)
			}
		})
	}
	done.Wait()
	listed := func(prefix string, after fencing.Resource, limit int) (all []fencing.Resource) {
		statuses, err := f.backend(t).List(ctx, prefix, after, limit)
		require.NoError(t, err)
		for _, s := range statuses {
			require.Len(t, s.Holders, 1)
			all = append(all, s.Resource)
		}
		return all
	}
	require.Equal(t, names, listed("many/", "", count*2))
	require.Equal(t, names[:10], listed("many/", "", 10))
	require.Equal(t, names[10:20], listed("many/", names[9], 10))
	slices.Sort(odd)
	require.Equal(t, odd, listed("odd", "", 100))
	require.Equal(t, []fencing.Resource{`odd/*`}, listed("odd/*", "", 100), "a star is not a pattern")
	require.Equal(t, []fencing.Resource{`odd/[a-z]`}, listed("odd/[", "", 100))
	require.Equal(t, []fencing.Resource{`odd/\x`}, listed(`odd/\`, "", 100))
	require.Equal(t, []fencing.Resource{`odd/?`}, listed(`odd/?`, "", 100))

	held, err := b.Find(ctx, `odd/:lock:x`, holderOf(t, b, `odd/:lock:x`))
	require.NoError(t, err)
	require.NoError(t, b.Release(ctx, held))
	require.NotContains(t, listed("odd/", "", 100), fencing.Resource(`odd/:lock:x`), "a free lock is not listed")

	// Locks that only one node has kept do not end the list early.
	for _, name := range names[10:20] {
		for node := range 2 {
			c := f.client(t, node)
			life, err := c.Get(ctx, "{leased}:life").Result()
			require.NoError(t, err)
			require.NoError(t, c.Del(ctx, "{leased}:"+life+":lock:"+string(name)).Err())
		}
	}
	require.Equal(t, names[20:30], listed("many/", names[9], 10))
	require.Equal(t, slices.Concat(names[5:10], names[20:25]), listed("many/", names[4], 10))
}

func holderOf(t *testing.T, b engine.Backend, name fencing.Resource) fencing.Token {
	t.Helper()
	status, err := b.Inspect(testContext(t), name)
	require.NoError(t, err)
	return status.Holders[0].Token
}

// The time in a record is written by any process that may use the node. An absurd one is
// not shown.
func TestInspectIgnoresAbsurdTimes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newVirtualFleet(t, 3).init(t)
		b := f.backend(t)
		held := acquireAlone(t, b, "a")
		require.NoError(t, b.Release(t.Context(), held))
		parts := strings.SplitN(held.Name, ".", 4)
		for _, text := range []string{"", "-1", "0", "AAAAAAAAAAAA", "____________", "aRkUAHByb2N", "aRkUAHByb2NlAAAA",
			"aRkUAHByb2N=", "\x00"} {
			forged := held
			parts[2] = text
			forged.Name = strings.Join(parts, ".")
			forged.Token++ // no lease with it has ended
			held.Token++
			require.NoError(t, b.Renew(t.Context(), []Held{forged})[0])
			status, err := b.Inspect(t.Context(), "a")
			require.NoError(t, err)
			require.Len(t, status.Holders, 1)
			require.Equal(t, held.Session, status.Holders[0].Session)
			require.Zero(t, status.Holders[0].Since, "%q", text)
			require.NoError(t, b.Release(t.Context(), forged))
		}
	})
}

// Other processes read the name of a holder as it is, also if JSON must escape it.
func TestHolderWithEscapes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newVirtualFleet(t, 3).init(t)
		b := f.backend(t)
		for i, holder := range []string{"", "host-1:42", `"ci" \\ 1`, "<b>&", "Zoë\u2028"} {
			r := request(engine.Nonce(i+1), fencing.Resource(fmt.Sprint("a", i)))
			r.Holder = holder
			held, err := b.Acquire(t.Context(), engine.NewSessionID(), virtualTTL, r)
			require.NoError(t, err)
			found, err := b.Find(t.Context(), held.Resources[0], held.Token)
			require.NoError(t, err)
			require.Equal(t, held, found)
		}
	})
}
