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

// chaosTTL is how long the leases of the chaos test last, and the quarantine of
// its nodes. Overlapping holders are counted, not refused: tokens are the promise.
const chaosTTL = time.Second

// ledger is every grant of a run.
type ledger struct {
	stop    func() // ends the run
	abandon bool   // some holders leave without a release

	mu       sync.Mutex
	newest   map[fencing.Resource]fencing.Token
	seen     map[fencing.Resource]map[fencing.Token]bool
	holding  map[fencing.Resource]int
	grants   int
	overlaps int
	refusals map[string]int
	wrong    []string
}

func newLedger(stop func()) *ledger {
	return &ledger{stop: stop, newest: map[fencing.Resource]fencing.Token{}, seen: map[fencing.Resource]map[fencing.Token]bool{},
		holding: map[fencing.Resource]int{}, refusals: map[string]int{}}
}

// before returns the newest token of grants that are complete.
func (l *ledger) before(r fencing.Resource) fencing.Token {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.newest[r]
}

func (l *ledger) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.grants
}

// granted notes a grant. before is the newest token from before it was asked for.
func (l *ledger) granted(r fencing.Resource, before, token fencing.Token) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.grants++
	if l.seen[r] == nil {
		l.seen[r] = map[fencing.Token]bool{}
	}
	if l.seen[r][token] {
		l.wrong = append(l.wrong, fmt.Sprintf("token %d of %s was granted twice", token, r))
	}
	if token <= before {
		l.wrong = append(l.wrong, fmt.Sprintf("token %d of %s was granted after %d", token, r, before))
	}
	if len(l.wrong) > 0 {
		l.stop()
	}
	l.seen[r][token] = true
	l.newest[r] = max(l.newest[r], token)
	if l.holding[r]++; l.holding[r] > 1 {
		l.overlaps++
	}
}

func (l *ledger) ended(r fencing.Resource) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.holding[r]--
}

func (l *ledger) refused(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, kind := range []error{redlockadapter.ErrNoState, engine.ErrHeld, engine.ErrUnavailable, engine.ErrUncertain, context.DeadlineExceeded, context.Canceled} {
		if errors.Is(err, kind) {
			l.refusals[kind.Error()[:min(40, len(kind.Error()))]]++
			return
		}
	}
	l.refusals[err.Error()]++
}

// work takes and releases locks until ctx ends. Now and then it leaves a lock to
// its TTL, or gives up while it waits.
func (l *ledger) work(ctx context.Context, s engine.Session, resources []fencing.Resource, dice *rand.Rand) {
	for nonce := engine.Nonce(1); ctx.Err() == nil; nonce++ {
		resource := resources[dice.IntN(len(resources))]
		r := request(nonce, resource)
		r.Wait = dice.IntN(4) > 0
		limited, cancel := context.WithTimeout(ctx, time.Duration(1+dice.IntN(1000))*time.Millisecond)
		before := l.before(resource)
		grant, err := s.Acquire(limited, r)
		cancel()
		if err != nil {
			l.refused(err)
			_ = s.Release(context.WithoutCancel(ctx), nonce)
			continue
		}
		l.granted(resource, before, grant.Token)
		if l.abandon && dice.IntN(100) == 0 { // its holder is gone
			left := chaosTTL - engine.SystemClock().Now().Since(grant.Sent)
			time.AfterFunc(left, func() { l.ended(resource) })
			continue
		}
		runtime.Gosched()
		l.ended(resource)
		if err := s.Release(ctx, nonce); err != nil {
			l.refused(err)
		}
	}
}

// fault does something to one server, and puts it right again.
func fault(ctx context.Context, t *testing.T, s *testserver.RedisServer, dice *rand.Rand) {
	wait := func(d time.Duration) {
		select {
		case <-time.After(d):
		case <-ctx.Done():
		}
	}
	some := time.Duration(20+dice.IntN(500)) * time.Millisecond
	switch dice.IntN(5) {
	case 0: // killed, and back with what it had on disk, or with nothing
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
	case 4: // back with an older folder
		require.NoError(t, s.Save())
		wait(some)
		require.NoError(t, s.PutBack())
		require.NoError(t, s.Start())
	}
}

// mixedFleet is five servers: two write every command to disk, one every second,
// and two never.
func mixedFleet(t *testing.T) *fleet {
	t.Helper()
	f := startFleet(t, 0)
	f.config.MaxTTL, f.config.NodeTimeout = chaosTTL, 200*time.Millisecond
	for _, options := range [][]testserver.RedisOption{
		{testserver.RedisAppendOnly()}, {testserver.RedisAppendOnly()}, {testserver.RedisConfig("appendonly", "yes")}, {}, {},
	} {
		one := startFleet(t, 1, options...)
		f.servers, f.config.Nodes = append(f.servers, one.servers...), append(f.config.Nodes, one.config.Nodes...)
	}
	return f.init(t)
}

// load runs processes with workers on the fleet until ctx ends.
func (l *ledger) load(ctx context.Context, t *testing.T, f *fleet) *sync.WaitGroup {
	t.Helper()
	resources := []fencing.Resource{"a", "b", "c", "d", "e", "f"}
	var working sync.WaitGroup
	for p := range 3 {
		b := f.backend(t)
		for w := range 6 {
			s, dice := open(t, b, chaosTTL), rand.New(rand.NewPCG(uint64(p), uint64(w)))
			working.Go(func() { l.work(ctx, s, resources, dice) })
		}
	}
	return &working
}

// faults strikes at random until ctx ends, with at most two nodes out at a time,
// those in quarantine included. It returns how often.
func (f *fleet) faults(ctx context.Context, t *testing.T, watcher *redlockadapter.Backend) (n int) {
	t.Helper()
	for dice := rand.New(rand.NewPCG(1, 1)); ctx.Err() == nil; {
		voting := live(t, watcher)
		if len(voting) < len(f.servers) && dice.IntN(3) > 0 || len(voting) < len(f.servers)-1 {
			select {
			case <-time.After(20 * time.Millisecond):
			case <-ctx.Done():
			}
			continue
		}
		fault(ctx, t, f.servers[voting[dice.IntN(len(voting))]], dice)
		n++
	}
	return n
}

// chaosTime is half a minute, or what LEASED_SOAK says.
func chaosTime(t *testing.T) time.Duration {
	t.Helper()
	soak := os.Getenv("LEASED_SOAK")
	if soak == "" {
		return 30 * time.Second
	}
	d, err := time.ParseDuration(soak)
	require.NoError(t, err)
	return d
}

// Tokens are unique and grow while nodes are restarted, emptied, set back and
// stopped at random, under load from several processes.
func TestTokensHoldInChaos(t *testing.T) {
	t.Parallel()
	f := mixedFleet(t)
	ctx, cancel := context.WithTimeout(context.Background(), chaosTime(t))
	defer cancel()
	l := newLedger(cancel)
	l.abandon = true
	working := l.load(ctx, t, f)
	watcher := f.backend(t)
	faults := f.faults(ctx, t, watcher)
	working.Wait()
	t.Logf("%d grants, %d faults, %d overlapping holders, refusals %v", l.grants, faults, l.overlaps, l.refusals)
	require.Empty(t, l.wrong)
	require.Greater(t, l.grants, 100)
	require.Greater(t, faults, 3)
	waitFor(t, func() bool { return len(live(t, watcher)) == len(f.servers) }, "every node recovers by itself")
}
