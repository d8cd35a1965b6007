package memory

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/machine"
)

// Backend is an engine.Backend in the memory of one process, on the state machine of
// correctness mode. Any number of Clients may share it.
type Backend struct {
	clock engine.Clock

	mu        sync.Mutex
	machine   *machine.Machine // all locks are in correctness mode for the machine
	policies  engine.Policies  // with the modes that clients see
	sessions  map[engine.SessionID]*session
	watchers  map[*watcher]bool
	fault     error
	callbacks []func() // run when mu is released
}

var _ engine.Backend = (*Backend)(nil)

// watcher is one call of Watch.
type watcher struct {
	resource fencing.Resource
	changed  chan struct{}
}

// New returns an empty Backend whose locks have these policies. A lock without a
// policy is in correctness mode.
func New(policies ...engine.Policy) (*Backend, error) {
	m := &Backend{clock: engine.MonotonicClock(), machine: machine.New(),
		sessions: map[engine.SessionID]*session{}, watchers: map[*watcher]bool{}}
	for _, p := range policies {
		if err := m.SetPolicy(p); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// SetPolicy adds or replaces a policy, which must have a mode. It returns
// engine.ErrHeld if the policy would change the mode of a lock in use.
func (m *Backend) SetPolicy(p engine.Policy) error {
	if err := machine.Validate(&machine.SetPolicy{Policy: p}); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.unlock()
	next := m.policies.With(p)
	for _, used := range m.machine.List("", "", math.MaxInt) {
		if modeOf(next, used.Resource) != modeOf(m.policies, used.Resource) {
			return fmt.Errorf("%w: policy for %q would change the mode of %q, which is in use", engine.ErrHeld, p.Prefix, string(used.Resource))
		}
	}
	m.policies = next
	p.Mode = engine.Correctness
	m.applyLocked(&machine.SetPolicy{Policy: p})
	return nil
}

// modeOf returns the mode of a lock; without a policy it is correctness.
func modeOf(policies engine.Policies, name fencing.Resource) engine.Mode {
	if mode := policies.For(name).Mode; mode != engine.AnyMode {
		return mode
	}
	return engine.Correctness
}

// checkModes checks that all locks of a request have the same mode, and the one that
// the caller expects. The caller holds mu.
func (m *Backend) checkModes(request *engine.Request) error {
	want := request.Mode
	for _, name := range request.Resources {
		have := modeOf(m.policies, name)
		if want == engine.AnyMode {
			want = have
		}
		if have != want {
			return &engine.ModeError{Resource: name, Want: request.Mode, Have: have}
		}
	}
	return nil
}

// Fail makes every call return err, as if the service could not be reached, until it is
// called with nil. Sessions still expire.
func (m *Backend) Fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fault = err
}

// ExpireAll ends every session, as if its TTL had passed.
func (m *Backend) ExpireAll() {
	m.mu.Lock()
	defer m.unlock()
	ids := slices.SortedFunc(maps.Keys(m.sessions), func(a, b engine.SessionID) int { return slices.Compare(a[:], b[:]) })
	for _, id := range ids {
		m.sessions[id].expireNow()
	}
}

// Open opens a session.
func (m *Backend) Open(ctx context.Context, config engine.SessionConfig) (engine.Session, error) {
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
		s.extend(sent)
		return s, nil
	}
	result := m.applyLocked(command)
	s := &session{memory: m, config: config, incarnation: result.Incarnation, sent: sent, waiting: map[engine.Nonce]chan waitResult{}}
	m.sessions[config.ID] = s
	s.extend(sent)
	return s, nil
}

// Inspect returns the holders and waiters of a lock.
func (m *Backend) Inspect(ctx context.Context, resource fencing.Resource) (engine.Status, error) {
	m.mu.Lock()
	defer m.unlock()
	if err := m.ready(ctx); err != nil {
		return engine.Status{}, err
	}
	return m.status(resource), nil
}

func (m *Backend) status(resource fencing.Resource) engine.Status {
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

// Watch calls changed with the status of a lock, and again after each change.
func (m *Backend) Watch(ctx context.Context, resource fencing.Resource, changed func(engine.Status)) error {
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

// Break ends the lease with this token.
func (m *Backend) Break(ctx context.Context, resource fencing.Resource, token fencing.Token) error {
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
		return fmt.Errorf("break %q: %w with token %d", string(resource), engine.ErrNotHeld, token)
	}
	return nil
}

// ready returns an error if no call can be served now. The caller holds mu.
func (m *Backend) ready(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return m.fault
}

// unlock releases mu, then runs the callbacks.
func (m *Backend) unlock() {
	callbacks := m.callbacks
	m.callbacks = nil
	m.mu.Unlock()
	for _, f := range callbacks {
		f()
	}
}

func (m *Backend) apply(c machine.Command) machine.Result {
	m.mu.Lock()
	defer m.unlock()
	return m.applyLocked(c)
}

// applyLocked applies a command and delivers its events. The caller holds mu.
func (m *Backend) applyLocked(c machine.Command) machine.Result {
	result, events := m.machine.Apply(c)
	for _, e := range events {
		m.deliver(c, e)
	}
	return result
}

// deliver delivers an event of a command to watchers and sessions. The caller holds mu.
func (m *Backend) deliver(c machine.Command, e machine.Event) {
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
		s.answer(e.Nonce, waitResult{grant: engine.Grant{Token: e.Token, Slot: e.Slot, Mode: modeOf(m.policies, e.Resources[0])}})
	case machine.EventCancelled:
		s.answer(e.Nonce, waitResult{err: cancelled(c, e.Nonce)})
	case machine.EventExpired:
		m.reportLoss(s, e.Nonce, engine.ErrExpired)
	case machine.EventBroken:
		m.reportLoss(s, e.Nonce, fmt.Errorf("%w: broken by an operator", engine.ErrTaken))
	case machine.EventDelayed:
		end := &machine.EndDelay{Resource: e.Resources[0], Delay: e.DelayID, Generation: m.machine.Generation()}
		time.AfterFunc(e.Delay, func() { m.apply(end) })
	}
}

// cancelled returns why a command took an attempt out of the queue.
func cancelled(c machine.Command, nonce engine.Nonce) error {
	switch c.(type) {
	case *machine.Release:
		return fmt.Errorf("%w: attempt %d was released", engine.ErrHeld, nonce)
	case *machine.Acquire:
		return fmt.Errorf("%w: a copy of attempt %d did not wait", engine.ErrHeld, nonce)
	}
	return engine.ErrExpired
}

// reportLoss reports a loss to its session when mu is released. The caller holds mu.
func (m *Backend) reportLoss(s *session, nonce engine.Nonce, err error) {
	m.callbacks = append(m.callbacks, func() { s.lost(nonce, err) })
}
