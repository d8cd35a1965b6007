package server_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/lease/leasetest"
	"github.com/leased-project/leased/lease/remote"
)

// client is one more process that uses the service.
func client(t testing.TB, endpoints []string, options ...remote.Option) *remote.Backend {
	t.Helper()
	b, err := remote.New(endpoints, options...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return b
}

func TestConformanceOfThreeMembers(t *testing.T) {
	c := startCluster(t, 3)
	leasetest.Run(t, func(t *testing.T) leasetest.Subject {
		return leasetest.Subject{
			Backend: func() engine.Backend { return client(t, c.endpoints()) },
			Mode:    engine.Correctness,
			TTL:     2 * time.Second,
			FIFO:    true,
		}
	})
}

// killTTL is the default of people. A third of it is longer than a change of leaders
// takes.
const killTTL = engine.DefaultTTL

// TestConformanceWhileLeadersAreKilled runs the suite while the leader is killed
// again and again, and comes back. Now and then there is peace for longer than
// the TTL: a new leader gives every session its full time again, so that under
// steady changes none would ever expire.
func TestConformanceWhileLeadersAreKilled(t *testing.T) {
	c := startCluster(t, 3)
	stop, stopped := make(chan struct{}), make(chan int)
	go func() { stopped <- c.killLeaders(stop, 4) }()
	leasetest.Run(t, func(t *testing.T) leasetest.Subject {
		return leasetest.Subject{
			Backend: func() engine.Backend { return client(t, c.endpoints(), remote.WithTimeout(30*time.Second)) },
			Mode:    engine.Correctness,
			TTL:     killTTL,
			FIFO:    true,
		}
	})
	close(stop)
	kills := <-stopped
	require.Greater(t, kills, 3, "the suite has seen changes of leaders")
	t.Logf("%d leaders were killed", kills)
}

// TestOneHolderWhileLeadersAreKilled: workers that take turns on few locks, until
// leaders have been killed often enough.
func TestOneHolderWhileLeadersAreKilled(t *testing.T) {
	const kills, clients, workers, locks = 6, 3, 4, 2
	c := startCluster(t, 3)
	ctx, cancel := context.WithCancel(patient(t))
	defer cancel()
	var (
		mu     sync.Mutex
		inside [locks]int
		tokens [locks][]fencing.Token
		wg     sync.WaitGroup
	)
	for range clients {
		user, err := lease.New(client(t, c.endpoints(), remote.WithTimeout(30*time.Second)), lease.WithPolicies(engine.Policy{TTL: killTTL}))
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, user.Close(context.Background())) })
		for n := range workers {
			lock := n % locks
			wg.Go(func() {
				for ctx.Err() == nil {
					err := user.Do(ctx, fencing.Resource(fmt.Sprint("lock ", lock)), func(_ context.Context, l *lease.Lease) error {
						mu.Lock()
						defer mu.Unlock()
						if inside[lock]++; inside[lock] != 1 {
							t.Errorf("%d holders of lock %d", inside[lock], lock)
						}
						tokens[lock] = append(tokens[lock], l.Token())
						inside[lock]--
						return nil
					})
					if err != nil && ctx.Err() == nil {
						t.Error(err)
						return
					}
				}
			})
		}
	}
	granted := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(tokens[0])
	}
	for range kills {
		require.Equal(t, 1, c.killLeader(nil))
		before := granted()
		eventually(t, "grants under the next leader", func() bool { return granted() > before })
	}
	cancel()
	wg.Wait()
	for lock := range tokens {
		require.IsIncreasing(t, tokens[lock], "every token is larger than the one before")
		t.Logf("lock %d: %d grants", lock, len(tokens[lock]))
	}
}

// killLeaders kills leaders, rounds of them with short pauses, then a long one,
// until stop. A renewal that has just failed must meet a leader in a short pause.
func (c *cluster) killLeaders(stop <-chan struct{}, rounds int) (kills int) {
	for n := 1; ; n++ {
		kills += c.killLeader(stop)
		pause := 1500 * time.Millisecond
		if n%rounds == 0 {
			pause = killTTL + 2*time.Second
		}
		select {
		case <-time.After(pause):
		case <-stop:
			return kills
		}
	}
}

// killLeader kills the leader, brings it back when another leads, and returns
// when it has found the new one.
func (c *cluster) killLeader(stop <-chan struct{}) int {
	until := func(holds func() bool) bool {
		for !holds() {
			select {
			case <-time.After(10 * time.Millisecond):
			case <-stop:
				return false
			}
		}
		return true
	}
	var victim *member
	if !until(func() bool { victim = c.leader(); return victim != nil }) {
		return 0
	}
	victim.kill()
	until(func() bool { return c.leader() != nil })
	victim.start()
	until(func() bool { return victim.status()["leaderApiAddress"] != nil })
	return 1
}
