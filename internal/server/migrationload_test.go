package server_test

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/lease/engine"
)

// tokenChecker checks T1 and T2 for one lock: no token is granted twice, and a grant
// that starts after another one was answered has a larger token.
type tokenChecker struct {
	mu      sync.Mutex
	largest uint64
	seen    map[uint64]string
	modes   map[string]int
}

// start returns the largest token that was answered so far.
func (c *tokenChecker) start() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.largest
}

// granted checks a grant whose request started after the token before was answered.
func (c *tokenChecker) granted(t *testing.T, before uint64, r *pb.AcquireResponse) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.Token <= before {
		t.Errorf("%s: token %d (%s) after %d (%s)", r.Resource, r.Token, r.Mode, before, c.seen[before])
	}
	if mode, twice := c.seen[r.Token]; twice {
		t.Errorf("%s: token %d (%s) was granted before (%s)", r.Resource, r.Token, r.Mode, mode)
	}
	c.seen[r.Token] = r.Mode
	c.modes[r.Mode]++
	c.largest = max(c.largest, r.Token)
}

// count returns the number of grants in a mode.
func (c *tokenChecker) count(mode engine.Mode) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.modes[mode.String()]
}

// Callers at all members take locks that migrate repeatedly, with now and without,
// while leaders are killed. Tokens are unique and grow across both modes, and every
// migration completes.
func TestMigrationsUnderLoad(t *testing.T) {
	t.Parallel()
	const locks, workers, grants, maxTTL = 2, 6, 10, 10 * time.Second
	c := startClusterWithRedis(t, 3, fleetOf(startRedis(t, 3), maxTTL))
	var checkers [locks]tokenChecker
	for i := range checkers {
		checkers[i].seen, checkers[i].modes = map[uint64]string{}, map[string]int{}
	}
	var work sync.WaitGroup
	load, stop := context.WithCancel(context.Background())
	defer work.Wait()
	defer stop()
	for n := range workers {
		api := pb.NewLeaseServiceClient(dial(t, c.members[n%3].spec.API))
		other := pb.NewLeaseServiceClient(dial(t, c.members[(n+1)%3].spec.API))
		work.Go(func() {
			checker, name := &checkers[n%locks], fmt.Sprint("fast/", n%locks)
			for load.Err() == nil {
				for _, at := range []pb.LeaseServiceClient{api, other} { // a follower redirects in correctness mode
					before := checker.start()
					r, err := at.Acquire(load, &pb.AcquireRequest{Resource: name, Ttl: "2s", Wait: "5s"})
					if err != nil {
						<-time.After(5 * time.Millisecond)
						continue
					}
					checker.granted(t, before, r)
					_, _ = at.Release(load, &pb.ReleaseRequest{Resource: name, Token: r.Token})
				}
			}
		})
	}
	awaitGrants := func(mode engine.Mode) {
		for i := range checkers {
			before := checkers[i].count(mode)
			eventually(t, "grants in mode "+mode.String(), func() bool { return checkers[i].count(mode) >= before+grants })
		}
	}
	for round, step := range []struct {
		to        engine.Mode
		now, kill bool
	}{{engine.Correctness, true, false}, {engine.Efficiency, false, true}, {engine.Correctness, false, true},
		{engine.Efficiency, true, false},
		{engine.Correctness, true, true}, {engine.Efficiency, true, true}} {
		eventually(t, "the policy is set", func() bool {
			code, _ := post(t, c.awaitLeader().spec.API, "/v1/set-policy",
				fmt.Sprintf(`{"policy":{"prefix":"fast/","mode":%q},"now":%v}`, step.to, step.now))
			return code == http.StatusOK
		})
		if step.kill {
			require.Equal(t, 1, c.killLeader(nil))
		}
		eventually(t, fmt.Sprintf("migration %d completes", round), func() bool {
			return hasMode(t, c.awaitLeader().spec.API, "fast/", step.to)
		})
		awaitGrants(step.to)
	}
	for i := range checkers {
		t.Logf("lock %d: %d grants in efficiency mode, %d in correctness mode", i, checkers[i].count(engine.Efficiency),
			checkers[i].count(engine.Correctness))
	}
}
