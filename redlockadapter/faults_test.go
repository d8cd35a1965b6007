package redlockadapter_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/redlockadapter"
)

// faultTTL is the TTL of the leases, and the quarantine of the nodes, while faults are
// injected. Overlapping holders are counted but allowed: the promise is about tokens.
const faultTTL = 2 * time.Second

// history checks the grants of a run.
type history struct {
	stop    func() // ends the run
	abandon bool   // some holders do not release their lease

	mu         sync.Mutex
	newest     map[fencing.Resource]fencing.Token
	seen       map[fencing.Resource]map[fencing.Token]bool
	holding    map[fencing.Resource]int
	grants     int
	overlaps   int
	refusals   map[string]int
	violations []string
}

func newHistory(stop func()) *history {
	return &history{stop: stop, newest: map[fencing.Resource]fencing.Token{},
		seen:    map[fencing.Resource]map[fencing.Token]bool{},
		holding: map[fencing.Resource]int{}, refusals: map[string]int{}}
}

// before returns the newest token that was granted so far.
func (l *history) before(r fencing.Resource) fencing.Token {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.newest[r]
}

func (l *history) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.grants
}

// granted records a grant. before was the newest token when the acquire started.
func (l *history) granted(r fencing.Resource, before, token fencing.Token) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.grants++
	if l.seen[r] == nil {
		l.seen[r] = map[fencing.Token]bool{}
	}
	if l.seen[r][token] {
		l.violations = append(l.violations, fmt.Sprintf("token %d of %s was granted twice", token, r))
	}
	if token <= before {
		l.violations = append(l.violations, fmt.Sprintf("token %d of %s was granted after %d", token, r, before))
	}
	if len(l.violations) > 0 {
		l.stop()
	}
	l.seen[r][token] = true
	l.newest[r] = max(l.newest[r], token)
	if l.holding[r]++; l.holding[r] > 1 {
		l.overlaps++
	}
}

func (l *history) ended(r fencing.Resource) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.holding[r]--
}

func (l *history) refused(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, kind := range []error{redlockadapter.ErrNoState, engine.ErrHeld, engine.ErrUnavailable, engine.ErrUncertain,
		context.DeadlineExceeded, context.Canceled} {
		if errors.Is(err, kind) {
			l.refusals[kind.Error()[:min(40, len(kind.Error()))]]++
			return
		}
	}
	l.refusals[err.Error()]++
}

// work acquires and releases locks until ctx ends. Sometimes it lets a lease expire, or
// cancels a waiting acquire.
func (l *history) work(ctx context.Context, s engine.Session, resources []fencing.Resource, rng *rand.Rand) {
	for nonce := engine.Nonce(1); ctx.Err() == nil; nonce++ {
		resource := resources[rng.IntN(len(resources))]
		r := request(nonce, resource)
		r.Wait = rng.IntN(4) > 0
		limited, cancel := context.WithTimeout(ctx, time.Duration(1+rng.IntN(1000))*time.Millisecond)
		before := l.before(resource)
		grant, err := s.Acquire(limited, r)
		cancel()
		if err != nil {
			l.refused(err) // it has released what it may have acquired
			continue
		}
		l.granted(resource, before, grant.Token)
		if l.abandon && rng.IntN(100) == 0 { // the lease expires
			left := faultTTL - engine.SystemClock().Now().Since(grant.Sent)
			time.AfterFunc(left, func() { l.ended(resource) })
			continue
		}
		runtime.Gosched()
		l.ended(resource)
		if err := s.Release(ctx, heldOf(r, grant, faultTTL)); err != nil {
			l.refused(err)
		}
	}
}

// fault injects one fault into a server, and ends it.
func fault(ctx context.Context, t testing.TB, s *testserver.RedisServer, rng *rand.Rand) {
	wait := func(d time.Duration) {
		select {
		case <-time.After(d):
		case <-ctx.Done():
		}
	}
	some := time.Duration(20+rng.IntN(500)) * time.Millisecond
	switch rng.IntN(5) {
	case 0: // killed, and restarted with the data on its disk, if any
		s.Kill()
		wait(some)
		require.NoError(t, s.Start())
	case 1:
		require.NoError(t, s.Wipe())
		require.NoError(t, s.Start())
	case 2:
		s.Pause()
		wait(some)
		s.Resume()
	case 3:
		s.Stop()
		wait(some)
		require.NoError(t, s.Start())
	case 4: // restarted with older data
		require.NoError(t, s.Save())
		wait(some)
		require.NoError(t, s.PutBack())
		require.NoError(t, s.Start())
	}
}

// mixedFleet starts five servers: two sync every command to disk, one syncs every
// second, and two never write to disk.
func mixedFleet(t testing.TB) *fleet {
	t.Helper()
	f := startFleet(t, 0)
	f.config.MaxTTL, f.config.NodeTimeout = faultTTL, faultTTL/4
	for _, options := range [][]testserver.RedisOption{
		{testserver.RedisAppendOnly()}, {testserver.RedisAppendOnly()}, {testserver.RedisConfig("appendonly", "yes")}, {}, {},
	} {
		one := startFleet(t, 1, options...)
		f.servers, f.config.Nodes = append(f.servers, one.servers...), append(f.config.Nodes, one.config.Nodes...)
	}
	return f.init(t)
}

// load starts processes with workers that run until ctx ends.
func (l *history) load(ctx context.Context, t testing.TB, f *fleet) *sync.WaitGroup {
	t.Helper()
	resources := []fencing.Resource{"a", "b", "c", "d", "e", "f"}
	var working sync.WaitGroup
	for p := range 3 {
		b := f.backend(t)
		for w := range 6 {
			s, rng := open(t, b, faultTTL), rand.New(rand.NewPCG(uint64(p), uint64(w)))
			working.Go(func() { l.work(ctx, s, resources, rng) })
		}
	}
	return &working
}

// faults injects random faults until ctx ends or there were enough, with at most two
// nodes out at a time, including those in quarantine. It returns the number of faults.
func (f *fleet) faults(ctx context.Context, t testing.TB, watcher *redlockadapter.Backend,
	enough func(faults int) bool) (n int) {
	t.Helper()
	for rng := rand.New(rand.NewPCG(1, 1)); ctx.Err() == nil && !enough(n); {
		voting := live(t, watcher)
		if len(voting) < len(f.servers) && rng.IntN(3) > 0 || len(voting) < len(f.servers)-1 {
			select {
			case <-time.After(20 * time.Millisecond):
			case <-ctx.Done():
			}
			continue
		}
		fault(ctx, t, f.servers[voting[rng.IntN(len(voting))]], rng)
		n++
	}
	return n
}

// faultTime returns how long faults are injected: LEASED_SOAK, or a short time.
func faultTime(t testing.TB) time.Duration {
	t.Helper()
	soak := os.Getenv("LEASED_SOAK")
	if soak == "" {
		return 10 * time.Second
	}
	d, err := time.ParseDuration(soak)
	require.NoError(t, err)
	return d
}

// Tokens are unique and grow while nodes are restarted, emptied, reset to older data and
// paused at random, under load from several processes.
func TestTokensGrowUnderFaults(t *testing.T) {
	t.Parallel()
	f := mixedFleet(t)
	ctx, cancel := context.WithTimeout(context.Background(), faultTime(t)+testTimeout)
	defer cancel()
	l, start := newHistory(cancel), engine.SystemClock().Now()
	l.abandon = true
	working := l.load(ctx, t, f)
	watcher := f.backend(t)
	faults := f.faults(ctx, t, watcher, func(faults int) bool {
		return faults >= 3 && l.count() >= 100 && engine.SystemClock().Now().Since(start) >= faultTime(t)
	})
	cancel()
	working.Wait()
	t.Logf("%d grants, %d faults, %d overlapping holders, refusals %v", l.grants, faults, l.overlaps, l.refusals)
	require.Empty(t, l.violations)
	require.GreaterOrEqual(t, l.grants, 100)
	require.GreaterOrEqual(t, faults, 3)
	waitFor(t, func() bool { return len(live(t, watcher)) == len(f.servers) }, "every node recovers without an operator")
}
