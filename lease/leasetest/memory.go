package leasetest

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/raftstore/machine"
)

// Memory is a lease.Backend in the memory of one process, on the state machine
// of the correctness mode. Any number of Clients may share it.
type Memory struct {
	clock lease.Clock

	mu       sync.Mutex
	machine  *machine.Machine // to which all locks are of the correctness mode
	policies lease.Policies   // with the modes that the locks have for clients
	sessions map[lease.SessionID]*memorySession
	watchers map[*watcher]bool
	fault    error
	told     []func() // what to tell others once mu is free
}

var _ lease.Backend = (*Memory)(nil)

// watcher is one call of Watch.
type watcher struct {
	resource fencing.Resource
	changed  chan struct{}
}

// NewMemory returns an empty Memory whose locks have these policies. Locks
// without one are of the correctness mode.
func NewMemory(policies ...lease.Policy) (*Memory, error) {
	m := &Memory{clock: lease.MonotonicClock(), machine: machine.New(),
		sessions: map[lease.SessionID]*memorySession{}, watchers: map[*watcher]bool{}}
	for _, p := range policies {
		if err := m.SetPolicy(p); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// SetPolicy adds or replaces a policy, which must name a mode. A policy that
// would change the mode of a lock in use is refused with lease.ErrHeld.
func (m *Memory) SetPolicy(p lease.Policy) error {
	if err := machine.Validate(&machine.SetPolicy{Policy: p}); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.unlock()
	next := m.policies.With(p)
	for _, used := range m.machine.List("", "", math.MaxInt) {
		if modeOf(next, used.Resource) != modeOf(m.policies, used.Resource) {
			return fmt.Errorf("%w: policy for %q would move %q, which is in use, to another mode", lease.ErrHeld, p.Prefix, string(used.Resource))
		}
	}
	m.policies = next
	p.Mode = lease.Correctness
	m.applyLocked(&machine.SetPolicy{Policy: p})
	return nil
}

// modeOf returns the mode of a lock; without a policy it is correctness.
func modeOf(policies lease.Policies, name fencing.Resource) lease.Mode {
	if mode := policies.For(name).Mode; mode != lease.AnyMode {
		return mode
	}
	return lease.Correctness
}

// checkModes reports whether all the locks of a request have the mode that it
// expects, or at least the same one. The caller holds mu.
func (m *Memory) checkModes(request *lease.Request) error {
	want := request.Mode
	for _, name := range request.Resources {
		have := modeOf(m.policies, name)
		if want == lease.AnyMode {
			want = have
		}
		if have != want {
			return &lease.ModeError{Resource: name, Want: request.Mode, Have: have}
		}
	}
	return nil
}

// Fail makes every call return err, as if the service were out of reach, until
// it is called with nil. Sessions go on running out.
func (m *Memory) Fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fault = err
}

// ExpireAll ends every session, as if its time had run out.
func (m *Memory) ExpireAll() {
	m.mu.Lock()
	defer m.unlock()
	ids := slices.SortedFunc(maps.Keys(m.sessions), func(a, b lease.SessionID) int { return slices.Compare(a[:], b[:]) })
	for _, id := range ids {
		m.sessions[id].expireNow()
	}
}

// Open starts a session.
func (m *Memory) Open(ctx context.Context, config lease.SessionConfig) (lease.Session, error) {
	sent := config.Clock.Now()
	command := &machine.OpenSession{Session: config.ID, TTL: config.TTL}
	if err := machine.Validate(command); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.unlock()
	if err := m.ready(ctx); err != nil {
		return nil, err
	}
	if s := m.sessions[config.ID]; s != nil {
		s.prolong(sent)
		return s, nil
	}
	result := m.applyLocked(command)
	s := &memorySession{memory: m, config: config, incarnation: result.Incarnation, sent: sent, waiting: map[lease.Nonce]chan waitResult{}}
	m.sessions[config.ID] = s
	s.prolong(sent)
	return s, nil
}

// Inspect tells who holds the lock and who waits for it.
func (m *Memory) Inspect(ctx context.Context, resource fencing.Resource) (lease.Status, error) {
	m.mu.Lock()
	defer m.unlock()
	if err := m.ready(ctx); err != nil {
		return lease.Status{}, err
	}
	return m.status(resource), nil
}

func (m *Memory) status(resource fencing.Resource) lease.Status {
	status := m.machine.Inspect(resource)
	status.Mode = modeOf(m.policies, resource)
	now := m.clock.Now()
	for i, h := range status.Holders {
		if s := m.sessions[h.Session]; s != nil {
			status.Holders[i].TTL = max(0, now.Until(s.deadline))
		}
	}
	return status
}

// Watch tells the status now and after each change.
func (m *Memory) Watch(ctx context.Context, resource fencing.Resource, changed func(lease.Status)) error {
	w := &watcher{resource: resource, changed: make(chan struct{}, 1)}
	w.changed <- struct{}{}
	m.mu.Lock()
	m.watchers[w] = true
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.watchers, w)
	}()
	for {
		select {
		case <-w.changed:
			status, err := m.Inspect(ctx, resource)
			if err != nil {
				return err
			}
			changed(status)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Break takes a lease away from its holder.
func (m *Memory) Break(ctx context.Context, resource fencing.Resource, token fencing.Token) error {
	command := &machine.Break{Resource: resource, Token: token}
	if err := machine.Validate(command); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.unlock()
	if err := m.ready(ctx); err != nil {
		return err
	}
	if result := m.applyLocked(command); result.Code != machine.Done {
		return fmt.Errorf("break %q: %w with token %d", string(resource), lease.ErrNotHeld, token)
	}
	return nil
}

// ready is why a call cannot be served now. The caller holds mu.
func (m *Memory) ready(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return m.fault
}

// unlock frees mu, then tells others what has happened.
func (m *Memory) unlock() {
	told := m.told
	m.told = nil
	m.mu.Unlock()
	for _, tell := range told {
		tell()
	}
}

func (m *Memory) apply(c machine.Command) machine.Result {
	m.mu.Lock()
	defer m.unlock()
	return m.applyLocked(c)
}

// applyLocked runs a command and passes its events on. The caller holds mu.
func (m *Memory) applyLocked(c machine.Command) machine.Result {
	result, events := m.machine.Apply(c)
	for _, e := range events {
		m.pass(e)
	}
	return result
}

func (m *Memory) pass(e machine.Event) {
	for w := range m.watchers {
		for _, name := range e.Resources {
			if name == w.resource && len(w.changed) == 0 {
				w.changed <- struct{}{}
			}
		}
	}
	s := m.sessions[e.Session]
	switch e.Type {
	case machine.EventGranted:
		s.answer(e.Nonce, waitResult{grant: lease.Grant{Token: e.Token, Slot: e.Slot, Mode: modeOf(m.policies, e.Resources[0])}})
	case machine.EventCancelled:
		s.answer(e.Nonce, waitResult{err: lease.ErrExpired})
	case machine.EventExpired:
		m.told = append(m.told, func() { s.lost(e.Nonce, lease.ErrExpired) })
	case machine.EventBroken:
		m.told = append(m.told, func() { s.lost(e.Nonce, fmt.Errorf("%w: broken by an operator", lease.ErrTaken)) })
	case machine.EventDelayed:
		end := &machine.EndDelay{Resource: e.Resources[0], Delay: e.DelayID, Generation: m.machine.Generation()}
		time.AfterFunc(e.Delay, func() { m.apply(end) })
	}
}
