package server_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/lease/engine"
)

// ledger holds the tokens of one lock against T1 and T2: no token is granted
// twice, and a grant that starts after another one was answered has a larger one.
type ledger struct {
	mu      sync.Mutex
	largest uint64
	seen    map[uint64]string
	modes   map[string]int
}

// begin returns the largest token that was answered so far.
func (l *ledger) begin() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.largest
}

func (l *ledger) granted(t *testing.T, before uint64, r *pb.AcquireResponse) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.Token <= before {
		t.Errorf("%s: token %d (%s) after %d (%s)", r.Resource, r.Token, r.Mode, before, l.seen[before])
	}
	if mode, twice := l.seen[r.Token]; twice {
		t.Errorf("%s: token %d (%s) was granted before (%s)", r.Resource, r.Token, r.Mode, mode)
	}
	l.seen[r.Token] = r.Mode
	l.modes[r.Mode]++
	l.largest = max(l.largest, r.Token)
}

// count returns how many grants there were in a mode.
func (l *ledger) count(mode engine.Mode) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.modes[mode.String()]
}

// TestSwitchesUnderLoad: callers at all members take locks that change their mode
// again and again, with now and without, while leaders are killed. Tokens are
// unique and grow over both modes, and every switch ends.
func TestSwitchesUnderLoad(t *testing.T) {
	const locks, workers, maxTTL = 2, 6, 10 * time.Second
	c := startClusterOn(t, 3, fleetOf(startRedis(t, 3), maxTTL))
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	var ledgers [locks]ledger
	for i := range ledgers {
		ledgers[i].seen, ledgers[i].modes = map[uint64]string{}, map[string]int{}
	}
	var work sync.WaitGroup
	load, stop := context.WithCancel(ctx)
	for n := range workers {
		api := pb.NewLeaseServiceClient(dial(t, c.members[n%3].spec.API))
		other := pb.NewLeaseServiceClient(dial(t, c.members[(n+1)%3].spec.API))
		work.Go(func() {
			l, name := &ledgers[n%locks], fmt.Sprint("fast/", n%locks)
			for load.Err() == nil {
				for _, at := range []pb.LeaseServiceClient{api, other} { // one of them may not lead
					before := l.begin()
					r, err := at.Acquire(load, &pb.AcquireRequest{Resource: name, Ttl: "1s", Wait: "5s"})
					if err != nil {
						<-time.After(5 * time.Millisecond)
						continue
					}
					l.granted(t, before, r)
					_, _ = at.Release(load, &pb.ReleaseRequest{Resource: name, Token: r.Token})
				}
			}
		})
	}
	grantsIn := func(mode engine.Mode) {
		counts := [locks]int{}
		for i := range ledgers {
			counts[i] = ledgers[i].count(mode)
		}
		eventually(t, "grants in mode "+mode.String(), func() bool {
			for i := range ledgers {
				if ledgers[i].count(mode) < counts[i]+20 {
					return false
				}
			}
			return true
		})
	}
	for round, step := range []struct {
		to        engine.Mode
		now, kill bool
	}{{engine.Correctness, true, false}, {engine.Efficiency, false, true}, {engine.Correctness, false, true}, {engine.Efficiency, true, false},
		{engine.Correctness, true, true}, {engine.Efficiency, true, true}} {
		c.setPolicy("fast/", step.to, step.now)
		if step.kill {
			require.Equal(t, 1, c.killLeader(nil))
		}
		eventually(t, fmt.Sprintf("switch %d ends", round), func() bool { return c.hasMode("fast/", step.to) })
		grantsIn(step.to)
	}
	stop()
	work.Wait()
	for i := range ledgers {
		t.Logf("lock %d: %v", i, ledgers[i].modes)
	}
}

// setPolicy sets a policy at the leader, whoever that is.
func (c *cluster) setPolicy(prefix string, mode engine.Mode, now bool) {
	c.t.Helper()
	eventually(c.t, "the policy is set", func() bool {
		leader := c.leader()
		if leader == nil {
			return false
		}
		code, _ := post(c.t, leader.spec.API, "/v1/set-policy", fmt.Sprintf(`{"policy":{"prefix":%q,"mode":%q},"now":%v}`, prefix, mode, now))
		return code == 200
	})
}

// hasMode reports whether the leader has completed the move of a prefix.
func (c *cluster) hasMode(prefix string, mode engine.Mode) bool {
	leader := c.leader()
	if leader == nil {
		return false
	}
	_, listed := post(c.t, leader.spec.API, "/v1/list-policies", `{}`)
	policies, _ := listed["policies"].([]any)
	for _, p := range policies {
		if p := p.(map[string]any); p["prefix"] == prefix {
			return p["mode"] == mode.String() && p["next"] == nil
		}
	}
	return false
}
