package raftstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/lease/engine"
)

// inside records the workers whose leases are valid by their own clocks.
type inside struct {
	mu     sync.Mutex
	now    map[fencing.Resource]int
	last   map[fencing.Resource]fencing.Token
	grants int
	faults []string
}

func (in *inside) enter(name fencing.Resource, token fencing.Token) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.grants++
	if in.now[name]++; in.now[name] > 1 {
		in.faults = append(in.faults, fmt.Sprintf("%d workers under %s", in.now[name], name))
	}
	if !token.Newer(in.last[name]) {
		in.faults = append(in.faults, fmt.Sprintf("token %d of %s after %d", token, name, in.last[name]))
	}
	in.last[name] = token
}

func (in *inside) leave(name fencing.Resource) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.now[name]--
}

// Clients whose clocks run at the service's rate, and which stop when they lose their lease,
// never hold a lock at the same time, however often the leader is isolated.
func TestIsolationsInVirtualTime(t *testing.T) {
	const isolations, workers = 300, 6
	synctest.Test(t, func(t *testing.T) {
		c := startMemory(t, 3)
		in := &inside{now: map[fencing.Resource]int{}, last: map[fencing.Resource]fencing.Token{}}
		ctx, cancel := context.WithCancel(context.Background())
		var wg sync.WaitGroup
		var clients []*lease.Client
		for i := range workers {
			client, err := lease.New(c.backend(), lease.WithClock(engine.MonotonicClock()),
				lease.WithPolicies(engine.Policy{TTL: 4 * time.Second}))
			require.NoError(t, err)
			clients = append(clients, client)
			name := fencing.Resource(fmt.Sprint("lock ", i%2))
			wg.Go(func() {
				for ctx.Err() == nil {
					_ = client.Do(ctx, name, func(work context.Context, l *lease.Lease) error {
						in.enter(name, l.Token())
						defer in.leave(name)
						select {
						case <-work.Done():
						case <-time.After(rand.N(6 * time.Second)):
						}
						return nil
					})
				}
			})
		}
		for range isolations {
			pass(rand.N(5 * time.Second))
			c.isolate(c.leader())
			pass(rand.N(8 * time.Second))
			c.heal()
		}
		cancel()
		wg.Wait()
		for _, client := range clients {
			require.NoError(t, client.Close(testContext(t)))
		}
		require.Empty(t, in.faults)
		require.Greater(t, in.grants, isolations/2)
		c.agree()
		t.Logf("%d grants across %d isolations", in.grants, isolations)
	})
}
