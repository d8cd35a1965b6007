package perlease_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/perlease"
	"github.com/leased-project/leased/lease/engine"
)

// memory is an engine in memory: locks with a holder, a token and a deadline, and waiters
// that check again after each change.
type memory struct {
	mu       sync.Mutex
	last     fencing.Token
	acquires int
	locks    map[fencing.Resource]*record
	changed  chan struct{}
	fault    error // the error of every call, nil for none

	acquired func(engine.Held) error // called before a grant is returned
	renewing func(engine.Held) error
	released []engine.Held
}

type record struct {
	held  engine.Held
	until engine.Instant
}

func newMemory() *memory {
	return &memory{locks: map[fencing.Resource]*record{}, changed: make(chan struct{})}
}

var clock = engine.MonotonicClock()

func (m *memory) notify() {
	close(m.changed)
	m.changed = make(chan struct{})
}

func (m *memory) holder(name fencing.Resource) *record {
	r := m.locks[name]
	if r == nil || clock.Now().Until(r.until) <= 0 {
		return nil
	}
	return r
}

func (m *memory) Acquire(ctx context.Context, session engine.SessionID, ttl time.Duration,
	request engine.Request) (engine.Held, error) {
	switch {
	case request.Kind != engine.Exclusive:
		return engine.Held{}, fmt.Errorf("%w: use a lock in correctness mode", engine.ErrUnsupported)
	case request.Mode == engine.Correctness:
		return engine.Held{}, &engine.ModeError{Resource: request.Resources[0], Want: request.Mode, Have: engine.Efficiency}
	}
	for {
		m.mu.Lock()
		if err := m.fault; err != nil {
			m.mu.Unlock()
			return engine.Held{}, err
		}
		until, changed := engine.Instant{}, m.changed
		for _, name := range request.Resources {
			if r := m.holder(name); r != nil {
				until = r.until
			}
		}
		if until.IsZero() {
			defer m.mu.Unlock()
			return m.grant(session, ttl, request)
		}
		m.mu.Unlock()
		if !request.Wait {
			return engine.Held{}, engine.ErrHeld
		}
		if request.Queued != nil {
			request.Queued()
			request.Queued = nil
		}
		timer := time.NewTimer(max(0, clock.Now().Until(until)))
		select {
		case <-changed:
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return engine.Held{}, context.Cause(ctx)
		}
		timer.Stop()
	}
}

func (m *memory) grant(session engine.SessionID, ttl time.Duration, request engine.Request) (engine.Held, error) {
	m.acquires++
	m.last++
	held := engine.Held{Name: fmt.Sprintf("%s.%d.%d", session, request.Nonce, m.acquires), Session: session,
		Nonce:     request.Nonce,
		Resources: request.Resources, Token: m.last, TTL: ttl, Holder: request.Holder, Metadata: request.Metadata}
	for _, name := range request.Resources {
		m.locks[name] = &record{held: held, until: clock.Now().Add(ttl)}
	}
	if m.acquired != nil {
		if err := m.acquired(held); err != nil {
			return engine.Held{}, err
		}
	}
	return held, nil
}

func (m *memory) Renew(_ context.Context, leases []engine.Held) []error {
	m.mu.Lock()
	defer m.mu.Unlock()
	errs := make([]error, len(leases))
	for i, held := range leases {
		errs[i] = m.renew(held)
	}
	return errs
}

func (m *memory) renew(held engine.Held) error {
	if m.fault != nil {
		return m.fault
	}
	if m.renewing != nil {
		if err := m.renewing(held); err != nil {
			return err
		}
	}
	for _, name := range held.Resources {
		r := m.holder(name)
		if r == nil || r.held.Name != held.Name {
			return engine.ErrTaken
		}
	}
	for _, name := range held.Resources {
		r := m.locks[name]
		if until := clock.Now().Add(held.TTL); until.Time().After(r.until.Time()) {
			r.until = until
		}
		if len(held.Metadata) > 0 {
			r.held.Metadata = held.Metadata
		}
	}
	return nil
}

// Release finds a lease without a name by its session and nonce.
func (m *memory) Release(_ context.Context, held engine.Held) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fault != nil {
		return m.fault
	}
	m.released = append(m.released, held)
	for _, name := range held.Resources {
		r := m.locks[name]
		if r != nil && r.held.Session == held.Session && r.held.Nonce == held.Nonce &&
			(held.Name == "" || held.Name == r.held.Name) {
			delete(m.locks, name)
		}
	}
	m.notify()
	return nil
}

// The methods below make it an engine.Backend, for the conformance suite.

func (m *memory) Open(_ context.Context, config engine.SessionConfig) (engine.Session, error) {
	return perlease.NewSession(m, config), nil
}

func (m *memory) Inspect(_ context.Context, name fencing.Resource) (engine.Status, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	status := engine.Status{Resource: name, Mode: engine.Efficiency}
	if r := m.holder(name); r != nil {
		status.Holders = []engine.Party{{Holder: r.held.Holder, Session: r.held.Session, Nonce: r.held.Nonce,
			Token:    r.held.Token,
			Metadata: r.held.Metadata, TTL: clock.Now().Until(r.until)}}
	}
	return status, nil
}

func (m *memory) Watch(ctx context.Context, name fencing.Resource, changed func(engine.Status)) error {
	last := fencing.Token(0)
	for first := true; ; first = false {
		status, _ := m.Inspect(ctx, name)
		token := fencing.None
		if len(status.Holders) > 0 {
			token = status.Holders[0].Token
		}
		if first || token != last {
			changed(status)
		}
		last = token
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (m *memory) Break(_ context.Context, name fencing.Resource, token fencing.Token) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.holder(name)
	if r == nil || r.held.Token != token {
		return engine.ErrNotHeld
	}
	for _, name := range r.held.Resources {
		delete(m.locks, name)
	}
	m.notify()
	return nil
}
