package redlockadapter_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease"
)

// room counts who is inside, and notes what should not be.
type room struct {
	mu      sync.Mutex
	readers int
	slots   map[int]bool
	writer  bool
	newest  fencing.Token
	most    int // readers, or permits, at a time
	wrong   []string
}

func (r *room) enter(kind lease.Kind, l *lease.Lease) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.writer || kind != lease.Permit && len(r.slots) > 0 || kind != lease.Shared && r.readers > 0 || r.slots[l.Slot()] {
		r.wrong = append(r.wrong, fmt.Sprintf("%v %d comes in beside a writer (%v), %d readers, permits %v", kind, l.Slot(), r.writer, r.readers, r.slots))
	}
	switch kind {
	case lease.Exclusive:
		r.writer = true
	case lease.Shared:
		r.readers++
	case lease.Permit:
		r.slots[l.Slot()] = true
	}
	r.most = max(r.most, r.readers, len(r.slots))
	r.newest = max(r.newest, l.Token())
}

func (r *room) leave(kind lease.Kind, l *lease.Lease) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch kind {
	case lease.Exclusive:
		r.writer = false
	case lease.Shared:
		r.readers--
	case lease.Permit:
		delete(r.slots, l.Slot())
	}
}

func (r *room) before() fencing.Token {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.newest
}

// Several processes want one lock in all ways. Nobody is inside with someone
// whom it should not meet, and every token is larger than those before.
func TestReadersWritersAndPermitsDoNotMeet(t *testing.T) {
	f := startFleet(t, 3)
	f.config.Shared, f.config.MaxTTL = true, time.Minute
	f.init(t)
	r := &room{slots: map[int]bool{}}
	var wg sync.WaitGroup
	for p := range 2 {
		c, err := lease.New(f.backend(t), lease.WithPolicies(lease.Policy{TTL: time.Minute}))
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, c.Close(patient(t))) })
		for w := range 5 {
			dice := rand.New(rand.NewPCG(uint64(p), uint64(w)))
			wg.Go(func() {
				for range 30 {
					kind := lease.Kind(dice.IntN(3))
					options := map[lease.Kind][]lease.AcquireOption{lease.Shared: {lease.WithShared()}, lease.Permit: {lease.WithPermits(3)}}[kind]
					before := r.before()
					l, err := c.Acquire(patient(t), "room", options...)
					if err != nil {
						t.Error(err)
						return
					}
					if l.Token() <= before {
						t.Errorf("token %d after %d", l.Token(), before)
					}
					r.enter(kind, l)
					for range 3 { // it takes a while
						if _, err := c.Inspect(patient(t), "room"); err != nil {
							t.Error(err)
						}
					}
					r.leave(kind, l)
					if err := l.Release(patient(t)); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	wg.Wait()
	require.Empty(t, r.wrong)
}

// Readers are inside together, also those of other processes.
func TestReadersMeet(t *testing.T) {
	f := startFleet(t, 3)
	f.config.Shared = true
	f.init(t)
	a, b := open(t, f.backend(t), 2*time.Second), open(t, f.backend(t), 2*time.Second)
	reader := func(nonce lease.Nonce) lease.Request {
		r := request(nonce, "a")
		r.Kind, r.Wait = lease.Shared, true
		return r
	}
	var tokens []fencing.Token
	for nonce := lease.Nonce(1); nonce <= 4; nonce++ {
		for _, s := range []lease.Session{a, b} {
			g, err := s.Acquire(patient(t), reader(nonce))
			require.NoError(t, err)
			tokens = append(tokens, g.Token)
		}
	}
	require.IsIncreasing(t, tokens)
	backend := f.backend(t)
	require.Eventually(t, func() bool {
		status, err := backend.Inspect(patient(t), "a")
		return err == nil && len(status.Holders) == len(tokens) && status.Holders[0].Kind == lease.Shared && status.Holders[0].Token == tokens[0]
	}, patience, time.Millisecond, "all of them are seen")
	require.NoError(t, backend.Break(patient(t), "a", tokens[0]))
	failed, err := a.Renew(patient(t))
	require.NoError(t, err)
	require.Empty(t, failed, "the others are still in")
	_, err = b.Acquire(patient(t), request(9, "a"))
	require.ErrorIs(t, err, lease.ErrHeld, "a writer is not let in")
}

func TestSharedLeasesAreSwitchedOnByName(t *testing.T) {
	f := startFleet(t, 1).init(t)
	s := open(t, f.backend(t), time.Second)
	r := request(1, "a")
	r.Kind = lease.Shared
	_, err := s.Acquire(patient(t), r)
	require.ErrorIs(t, err, lease.ErrUnsupported)
	require.ErrorContains(t, err, "Config.Shared")
}
