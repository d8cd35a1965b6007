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
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/redlockadapter"
)

// chaosTTL is how long the leases of the chaos last.
const chaosTTL = 500 * time.Millisecond

// ledger is every grant of a run, in the order in which they were noted.
type ledger struct {
	mu       sync.Mutex
	newest   map[fencing.Resource]fencing.Token // of grants that have ended or are held
	tokens   map[fencing.Resource]map[fencing.Token]int
	holding  map[fencing.Resource]int
	grants   int
	overlaps int
	errors   map[string]int
	wrong    []string
	stop     func() // ends the run
}

func newLedger() *ledger {
	return &ledger{newest: map[fencing.Resource]fencing.Token{}, tokens: map[fencing.Resource]map[fencing.Token]int{},
		holding: map[fencing.Resource]int{}, errors: map[string]int{}}
}

// before is the newest token that was granted when an attempt begins.
func (l *ledger) before(r fencing.Resource) fencing.Token {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.newest[r]
}

func (l *ledger) granted(r fencing.Resource, kind lease.Kind, before, token fencing.Token) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.grants++
	if l.tokens[r] == nil {
		l.tokens[r] = map[fencing.Token]int{}
	}
	if l.tokens[r][token]++; l.tokens[r][token] > 1 {
		l.wrong = append(l.wrong, fmt.Sprintf("token %d of %s was granted twice", token, r))
	}
	if token <= before {
		l.wrong = append(l.wrong, fmt.Sprintf("token %d of %s was granted after %d", token, r, before))
	}
	if len(l.wrong) > 0 {
		l.stop()
	}
	l.newest[r] = max(l.newest[r], token)
	if kind != lease.Exclusive {
		return // others may be in
	}
	if l.holding[r]++; l.holding[r] > 1 {
		l.overlaps++
	}
}

func (l *ledger) ended(r fencing.Resource, kind lease.Kind) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if kind == lease.Exclusive {
		l.holding[r]--
	}
}

// kindFor is how a lock is wanted: most alone, one by readers too, and one with
// permits.
func kindFor(r fencing.Resource, dice *rand.Rand) (lease.Kind, int) {
	switch {
	case r == "e" && dice.IntN(4) > 0:
		return lease.Shared, 0
	case r == "f" && dice.IntN(4) > 0:
		return lease.Permit, 2
	}
	return lease.Exclusive, 0
}

func (l *ledger) failed(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, kind := range []error{redlockadapter.ErrNoData, lease.ErrHeld, lease.ErrUnavailable, lease.ErrUncertain, context.DeadlineExceeded, context.Canceled} {
		if errors.Is(err, kind) {
			l.errors[kind.Error()[:min(40, len(kind.Error()))]]++
			return
		}
	}
	l.errors[err.Error()]++
}

// work takes and releases locks until ctx ends. Now and then it walks away and
// leaves a lock to its TTL, or gives up while it waits.
func (l *ledger) work(ctx context.Context, s lease.Session, resources []fencing.Resource, r *rand.Rand, nonces func() lease.Nonce) {
	clock := lease.SystemClock()
	for ctx.Err() == nil {
		resource := resources[r.IntN(len(resources))]
		request := request(nonces(), resource)
		request.Kind, request.Permits = kindFor(resource, r)
		request.Wait = r.IntN(4) > 0
		limited, cancel := context.WithTimeout(ctx, time.Duration(1+r.IntN(1000))*time.Millisecond)
		before := l.before(resource)
		grant, err := s.Acquire(limited, request)
		cancel()
		if err != nil {
			l.failed(err)
			_ = s.Release(context.WithoutCancel(ctx), request.Nonce)
			continue
		}
		l.granted(resource, request.Kind, before, grant.Token)
		left := chaosTTL - chaosTTL/100 - 2*time.Millisecond - clock.Now().Since(grant.Sent)
		if r.IntN(60) == 0 { // it holds until its time is over
			time.AfterFunc(left, func() { l.ended(resource, request.Kind) })
			continue
		}
		runtime.Gosched()
		l.ended(resource, request.Kind)
		if err := s.Release(ctx, request.Nonce); err != nil {
			l.failed(err)
		}
	}
}

// trouble does something to one of the minority of servers that it may touch,
// and puts it right again.
func trouble(t *testing.T, ctx context.Context, s *testserver.RedisServer, r *rand.Rand) {
	wait := func(d time.Duration) {
		select {
		case <-time.After(d):
		case <-ctx.Done():
		}
	}
	some := time.Duration(20+r.IntN(400)) * time.Millisecond
	switch r.IntN(5) {
	case 0: // killed, and back with what it had on disk, or with nothing
		s.Kill()
		wait(some)
		require.NoError(t, s.Start())
	case 1: // emptied
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
	case 4: // back with what it had on disk a while ago
		require.NoError(t, s.Save())
		wait(some)
		require.NoError(t, s.PutBack())
		require.NoError(t, s.Start())
	}
}

// chaosTime is how long the chaos lasts: a minute, or LEASED_SOAK=10m for a soak.
func chaosTime(t *testing.T) time.Duration {
	t.Helper()
	soak := os.Getenv("LEASED_SOAK")
	if soak == "" {
		return time.Minute
	}
	d, err := time.ParseDuration(soak)
	require.NoError(t, err)
	return d
}

// TestTokensHoldInChaos empties, kills, pauses and restarts a minority of five
// nodes at random under load. Two of them write every command to disk, one every
// second, and two never: they come back with all, most or none of their data.
// It begins with the nodes so that a node that is touched again has its data:
// then no more than two are without at a time, which is what the promise needs.
func TestTokensHoldInChaos(t *testing.T) {
	t.Parallel() // it waits more than it works, as does TestConforms
	f := &fleet{config: redlockadapter.Config{MaxTTL: chaosTTL, NodeTimeout: 200 * time.Millisecond, Shared: true}}
	for _, options := range [][]testserver.RedisOption{
		{testserver.RedisAppendOnly()}, {testserver.RedisAppendOnly()},
		{testserver.RedisConfig("appendonly", "yes"), testserver.RedisConfig("appendfsync", "everysec")}, {}, {},
	} {
		one := startFleet(t, 1, options...)
		f.servers, f.config.Nodes = append(f.servers, one.servers...), append(f.config.Nodes, one.config.Nodes...)
	}
	f.init(t)
	chaos(t, f, chaosTime(t))
}

func chaos(t *testing.T, f *fleet, length time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), length)
	defer cancel()
	book := newLedger()
	book.stop = cancel
	resources := []fencing.Resource{"a", "b", "c", "d", "e", "f"}
	var wg sync.WaitGroup
	for p := range 3 {
		b := f.backend(t)
		for w := range 6 {
			s := open(t, b, chaosTTL)
			var nonce lease.Nonce
			r := rand.New(rand.NewPCG(uint64(p), uint64(w)))
			wg.Go(func() {
				book.work(ctx, s, resources, r, func() lease.Nonce { nonce++; return nonce })
			})
		}
	}
	watcher := f.backend(t)
	troubles := 0
	for r := rand.New(rand.NewPCG(1, 1)); ctx.Err() == nil; {
		healthy := wellNodes(ctx, watcher)
		if len(healthy) < len(f.servers) && r.IntN(3) > 0 || len(healthy) < len(f.servers)-1 {
			continue // no more than two at a time, and one of them by chance
		}
		trouble(t, ctx, f.servers[healthy[r.IntN(len(healthy))]], r)
		troubles++
	}
	wg.Wait()
	t.Logf("%d grants, %d troubles, %d overlapping holders, epoch %d, refusals %v", book.grants, troubles, book.overlaps, watcher.Epoch(), book.errors)
	require.Empty(t, book.wrong)
	require.Greater(t, book.grants, 100, "there was load")
	require.Greater(t, troubles, 5, "and trouble")
	require.Eventually(t, func() bool { return len(wellNodes(context.Background(), watcher)) == len(f.servers) },
		30*time.Second, 50*time.Millisecond, "every node comes back by itself")
}

// wellNodes are those that have their data and can vote.
func wellNodes(ctx context.Context, b *redlockadapter.Backend) []int {
	var well []int
	for i, s := range b.NodeStatuses(ctx) {
		if s.Err == nil && !s.Empty {
			well = append(well, i)
		}
	}
	return well
}
