package raftstore

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/machine"
	"github.com/leased-project/leased/raftstore/replica"
)

func TestQueueSurvivesFailover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startMemory(t, 3)
		b := c.backend()
		holder := retrying{openSession(t, b, time.Minute)}
		first, err := holder.Acquire(testContext(t), lockRequest(1, "a"))
		require.NoError(t, err)

		const waiters = 5
		var mu sync.Mutex
		var order []int
		var wg sync.WaitGroup
		for i := range waiters {
			s := retrying{openSession(t, b, time.Minute)}
			queued := make(chan struct{})
			request := lockRequest(1, "a")
			request.Wait, request.Queued = true, sync.OnceFunc(func() { close(queued) })
			wg.Go(func() {
				grant, err := s.Acquire(testContext(t), request)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				order = append(order, i)
				mu.Unlock()
				if !grant.Token.Newer(first.Token) {
					t.Errorf("token %d after %d", grant.Token, first.Token)
				}
				if err := s.Release(testContext(t), 1); err != nil {
					t.Error(err)
				}
			})
			firstOf(t, queued, "the request is queued")
		}
		for range 3 { // the queue moves from leader to leader
			c.heal()
			old := c.leader()
			c.isolate(old)
			eventually(t, "another leader", func() bool { next := c.leader(); return next != old })
		}
		// The last leader stays isolated: it would never answer its waiters.
		require.NoError(t, holder.Release(testContext(t), 1))
		wg.Wait()
		c.heal()
		require.Equal(t, []int{0, 1, 2, 3, 4}, order)
		c.agree()
	})
}

func TestWaitersFollowTheLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startMemory(t, 3)
		b := c.backend()
		holder, waiter := retrying{openSession(t, b, time.Minute)}, retrying{openSession(t, b, time.Minute)}
		_, err := holder.Acquire(testContext(t), lockRequest(1, "a"))
		require.NoError(t, err)
		queued, granted := make(chan struct{}), make(chan error, 1)
		request := lockRequest(1, "a")
		request.Wait, request.Queued = true, sync.OnceFunc(func() { close(queued) })
		go func() { _, err := waiter.Acquire(testContext(t), request); granted <- err }()
		firstOf(t, queued, "the request is queued")
		old := c.leader()
		c.isolate(old) // for good: it never answers its waiters
		eventually(t, "another leader", func() bool { next := c.leader(); return next != old })
		require.NoError(t, holder.Release(testContext(t), 1))
		require.NoError(t, firstOf(t, granted, "a grant"))
	})
}

func TestWaiterChecksBeforeItWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startMemory(t, 1)
		s := openSession(t, c.backend(), time.Minute)
		grant, err := s.Acquire(testContext(t), lockRequest(1, "a"))
		require.NoError(t, err)
		same, err := awaitQueued(t, c.leader(), c.leader().leading.Load(), s.(*Session), lockRequest(1, "a"))
		require.NoError(t, err, "it was granted between the answer and the wait")
		require.Equal(t, grant.Token, same.Token)
	})
}

// awaitQueued waits for a request as if it had been queued.
func awaitQueued(t *testing.T, n *Node, term *leadership, s *Session, request engine.Request) (machine.Result, error) {
	t.Helper()
	w := make(reply, 1)
	a := &acquisition{session: s, node: n, term: term, ctx: testContext(t), caller: w,
		command: machine.Acquire{Session: s.config.ID, Incarnation: s.number, Request: request}}
	a.await()
	return n.committer.wait(testContext(t), w, nil, nil)
}

// A deposed leader tells its waiters to ask the next one.
func TestDeposedLeaderEndsItsWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startMemory(t, 1)
		holder, waiter := openSession(t, c.backend(), time.Minute), openSession(t, c.backend(), time.Minute)
		_, err := holder.Acquire(testContext(t), lockRequest(1, "a"))
		require.NoError(t, err)
		request := lockRequest(1, "a")
		request.Wait = true
		ended := make(chan error, 1)
		go func() { _, err := waiter.Acquire(testContext(t), request); ended <- err }()
		synctest.Wait()
		c.leader().stepDown("a test")
		synctest.Wait()
		select {
		case err := <-ended:
			require.ErrorIs(t, err, engine.ErrUncertain)
			require.ErrorContains(t, err, "repeat it with the same nonce")
		default:
			require.Fail(t, "the wait has not ended")
		}
	})
}

// Operations that nobody has proposed are answered when the node closes.
func TestCloseAnswersQueuedOperations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startMemory(t, 1)
		s := openSession(t, c.backend(), time.Minute).(*Session)
		synctest.Wait() // the committer is idle, so it proposes nothing before it is woken
		acquire, release := make(reply, 1), make(reply, 1)
		require.NoError(t, s.Begin(testContext(t), lockRequest(1, "a"), acquire))
		require.NoError(t, s.BeginRelease(7, release))
		n := c.leader()
		require.NoError(t, n.Close())
		synctest.Wait()
		for _, w := range []reply{acquire, release} {
			select {
			case out := <-w:
				require.ErrorIs(t, out.err, ErrStopped)
			default:
				require.Fail(t, "the operation has no outcome")
			}
		}
		require.ErrorIs(t, n.committer.enqueue(nil, nil, reply(nil)), ErrStopped)
	})
}

// An acquire whose caller is gone is not proposed: nobody would release its lock.
func TestAcquireOfAnEndedContextIsNotProposed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startMemory(t, 1)
		s := openSession(t, c.backend(), time.Minute).(*Session)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, s.Begin(ctx, lockRequest(1, "a"), make(reply, 1)), engine.ErrUnavailable)
		c.backend().Flush()
		synctest.Wait()
		status, err := c.leader().Inspect(testContext(t), "a", Linearizable)
		require.NoError(t, err)
		require.Empty(t, status.Holders)
	})
}

// A leader that was deposed between the answer "queued" and the wait ends the wait.
func TestWaiterChecksForLeadershipBeforeItWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startMemory(t, 1)
		holder := openSession(t, c.backend(), time.Minute)
		waiter := openSession(t, c.backend(), time.Minute).(*Session)
		_, err := holder.Acquire(testContext(t), lockRequest(1, "a"))
		require.NoError(t, err)
		n := c.leader()
		request := lockRequest(1, "a")
		request.Wait = true
		require.NoError(t, waiter.Begin(testContext(t), request, make(reply, 1)))
		n.committer.wakeUp()
		synctest.Wait()
		term := n.leading.Load()
		n.stepDown("a test")
		_, err = awaitQueued(t, n, term, waiter, request)
		require.ErrorIs(t, err, engine.ErrUncertain)
		require.ErrorContains(t, err, "repeat it with the same nonce")
	})
}

func TestCloseWaitsForTheEntryInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		under := map[string]*disk{}
		c := startMemory(t, 1, disks(under, make(chan error, 1)))
		n := c.leader()
		stuck := make(chan struct{})
		under[n.ID()].stuck.Store(&stuck)
		answered := make(chan error, 1)
		go func() { answered <- n.barrier(context.Background()) }()
		synctest.Wait()
		closed := make(chan error, 1)
		go func() { closed <- n.Close() }()
		synctest.Wait()
		close(stuck)
		require.NoError(t, firstOf(t, answered, "an answer"))
		require.NoError(t, firstOf(t, closed, "the node is closed"))
	})
}

func TestEachAttemptHasOneOutcomeAcrossFailovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startMemory(t, 3)
		b := c.backend()
		s := retrying{openSession(t, b, 10*time.Minute)}
		stop := make(chan struct{})
		var disturber sync.WaitGroup
		disturber.Go(func() {
			for {
				select {
				case <-stop:
					c.heal()
					return
				case <-time.After(700 * time.Millisecond):
					c.isolate(c.leader())
				}
				pass(3 * time.Second)
				c.heal()
			}
		})
		last := fencing.None
		for nonce := engine.Nonce(1); nonce <= 300; nonce++ {
			grant, err := s.Acquire(testContext(t), lockRequest(nonce, "a"))
			require.NoError(t, err)
			again, err := s.Acquire(testContext(t), lockRequest(nonce, "a"))
			require.NoError(t, err)
			require.Equal(t, grant.Token, again.Token, "a repeated attempt has the same grant")
			require.True(t, grant.Token.Newer(last), "%d after %d", grant.Token, last)
			last = grant.Token
			require.NoError(t, s.Release(testContext(t), nonce))
			pass(100 * time.Millisecond)
		}
		close(stop)
		disturber.Wait()
		c.agree()
		require.Equal(t, fencing.Token(300), c.leader().Status().LastToken, "no grant was made twice")
	})
}

func TestLockDelayRunsAgainAfterFailover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startMemory(t, 3)
		b := c.backend()
		_, err := c.leader().SetPolicy(testContext(t), engine.Policy{Prefix: "slow/", Mode: engine.Correctness,
			LockDelay: 20 * time.Second}, 0, false)
		require.NoError(t, err)
		s, other := openSession(t, b, time.Second), retrying{openSession(t, b, 10*time.Minute)}
		_, err = s.Acquire(testContext(t), lockRequest(1, "slow/a"))
		require.NoError(t, err)
		request := lockRequest(1, "slow/a")
		request.Wait = true
		began := engine.MonotonicClock().Now()
		granted := make(chan error, 1)
		go func() { _, err := other.Acquire(testContext(t), request); granted <- err }()
		eventually(t, "delay", func() bool {
			status, err := b.Inspect(testContext(t), "slow/a")
			return err == nil && status.Delayed
		})
		old := c.leader()
		c.isolate(old)
		require.NoError(t, firstOf(t, granted, "a grant"))
		waited := engine.MonotonicClock().Now().Since(began)
		require.Greater(t, waited, 20*time.Second)
		require.Less(t, waited, 30*time.Second)
	})
}

func TestReadsOfLocksAndSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startMemory(t, 3)
		n, ctx := c.leader(), testContext(t)
		s := openSession(t, c.backend(), time.Minute)
		for i := range 5 {
			_, err := s.Acquire(ctx, lockRequest(engine.Nonce(i+1), fencing.Resource(fmt.Sprintf("p/%d", i))))
			require.NoError(t, err)
		}
		var names []fencing.Resource
		for after := fencing.Resource(""); ; {
			page, err := n.List(ctx, "p/", after, 2, Linearizable)
			require.NoError(t, err)
			if len(page) == 0 {
				break
			}
			for _, status := range page {
				names = append(names, status.Resource)
				require.Positive(t, status.Holders[0].TTL)
			}
			after = names[len(names)-1]
		}
		require.Equal(t, []fencing.Resource{"p/0", "p/1", "p/2", "p/3", "p/4"}, names)
		requests, err := n.Requests(ctx, s.(*Session).config.ID, Linearizable)
		require.NoError(t, err)
		require.Equal(t, 5, requests)
		_, err = n.Requests(ctx, engine.NewSessionID(), Linearizable)
		require.ErrorIs(t, err, engine.ErrNotHeld)
		for _, follower := range c.nodes {
			if follower == n {
				continue
			}
			var notLeader *NotLeaderError
			_, err := follower.Inspect(ctx, "p/0", Linearizable)
			require.ErrorAs(t, err, &notLeader)
			require.Equal(t, n.ID(), notLeader.Leader)
			require.ErrorIs(t, err, engine.ErrUnavailable)
			_, err = follower.List(ctx, "", "", 10, Stale)
			require.NoError(t, err)
		}
	})
}

func TestFullQueueIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		under := map[string]*disk{}
		c := startMemory(t, 1, disks(under, make(chan error, 1)), func(c *Config) { c.MaxPending = 2 })
		s := openSession(t, c.backend(), time.Minute)
		stuck := make(chan struct{})
		under["n0"].stuck.Store(&stuck)
		var wg sync.WaitGroup
		for i := range 3 { // one in flight, two in the queue
			wg.Go(func() { _, _ = s.Acquire(testContext(t), lockRequest(engine.Nonce(i+1), "a")) })
			synctest.Wait()
		}
		_, err := s.Acquire(testContext(t), lockRequest(9, "a"))
		require.ErrorIs(t, err, ErrBusy)
		require.ErrorIs(t, err, engine.ErrUnavailable, "the call had no effect")
		require.NotErrorIs(t, err, engine.ErrUncertain)
		close(stuck)
		wg.Wait()
	})
}

func TestDivergedReplicaStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan error, 3)
		c := startMemory(t, 3, func(c *Config) { c.Fatal = func(err error) { ended <- err } })
		leader := c.leader()
		s := openSession(t, c.backend(), time.Minute)
		c.agree()
		var odd *Node
		for _, n := range c.nodes {
			if n != leader {
				odd = n
			}
		}
		diverge(odd)
		_, err := s.Acquire(testContext(t), lockRequest(1, "a"))
		require.NoError(t, err, "the other nodes continue")
		var diverged *replica.DivergenceError
		require.ErrorAs(t, firstOf(t, ended, "the diverged replica stops"), &diverged)
		require.Equal(t, odd.ID(), diverged.Node)
		require.ErrorContains(t, diverged, "join it again")
		require.Error(t, odd.Failure())
		require.False(t, odd.Leads())
		_, err = s.Acquire(testContext(t), lockRequest(2, "b"))
		require.NoError(t, err)
		require.Empty(t, ended)
	})
}

func TestCancelledWaiterLeavesTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startMemory(t, 3)
		b := c.backend()
		holder, waiter := openSession(t, b, time.Minute), openSession(t, b, time.Minute)
		_, err := holder.Acquire(testContext(t), lockRequest(1, "a"))
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(context.Background())
		request := lockRequest(1, "a")
		request.Wait, request.Queued = true, cancel
		_, err = waiter.Acquire(ctx, request)
		require.ErrorIs(t, err, context.Canceled)
		require.NoError(t, waiter.Release(testContext(t), engine.Held{Nonce: 1}))
		status, err := b.Inspect(testContext(t), "a")
		require.NoError(t, err)
		require.Empty(t, status.Waiters)
		for _, n := range c.nodes {
			require.True(t, n.hub.Idle())
		}
	})
}
