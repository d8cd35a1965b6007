package memory

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/hub"
	"github.com/leased-project/leased/raftstore/lessor"
	"github.com/leased-project/leased/raftstore/machine"
)

// Backend is an engine.Backend in the memory of one process, on the state machine of
// correctness mode. Any number of Clients may share it.
type Backend struct {
	clock engine.Clock
	hub   *hub.Hub

	mu        sync.Mutex
	machine   *machine.Machine // all locks are in correctness mode for the machine
	lessor    *lessor.Lessor
	timer     *time.Timer     // of the next deadline; nil before the first one
	policies  engine.Policies // with the modes that clients see
	fault     error
	callbacks []func() // run when mu is released
}

var _ engine.Backend = (*Backend)(nil)

// New returns an empty Backend whose locks have these policies. A lock without a
// policy is in correctness mode.
func New(policies ...engine.Policy) (*Backend, error) {
	m := &Backend{clock: engine.MonotonicClock(), hub: hub.New(), machine: machine.New()}
	now := m.clock.Now()
	m.lessor = lessor.New(now, now, m.machine.Generation(), false, 0)
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
	for _, used := range m.machine.Summaries("", math.MaxInt) {
		if modeOf(next, used.Resource) != modeOf(m.policies, used.Resource) {
			return fmt.Errorf("%w: policy for %q would change the mode of %q, which is in use", engine.ErrHeld, p.Prefix,
				string(used.Resource))
		}
	}
	m.policies = next
	p.Mode = engine.Correctness
	m.apply(&machine.SetPolicy{Policy: p})
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
// the caller expects. It returns that mode. The caller holds mu.
func (m *Backend) checkModes(request *engine.Request) (engine.Mode, error) {
	want := request.Mode
	for _, name := range request.Resources {
		have := modeOf(m.policies, name)
		if want == engine.AnyMode {
			want = have
		}
		if have != want {
			return engine.AnyMode, &engine.ModeError{Resource: name, Want: request.Mode, Have: have}
		}
	}
	return want, nil
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
	opened, _ := m.machine.Sessions(machine.AllSessions, math.MaxInt)
	for _, s := range opened {
		m.apply(&machine.Expire{Session: s.ID, Incarnation: s.Incarnation, Generation: m.machine.Generation()})
	}
	m.unlock()
	m.endRequests()
}

// Open opens a session.
func (m *Backend) Open(ctx context.Context, config engine.SessionConfig) (engine.Session, error) {
	command := &machine.OpenSession{Session: config.ID, TTL: config.TTL}
	if err := machine.Validate(command); err != nil {
		return nil, err
	}
	s := &session{memory: m, config: config, sent: config.Clock.Now()}
	m.mu.Lock()
	defer m.unlock()
	if err := m.ready(ctx); err != nil {
		return nil, err
	}
	s.incarnation = m.apply(command).Incarnation
	m.lessor.Renew(m.clock.Now(), config.ID, s.incarnation, config.TTL)
	if config.Lost != nil {
		s.listener = &hub.Listener{Lost: config.Lost}
		m.hub.Listen(config.ID, s.listener)
		m.hub.Identify(config.ID, s.listener, s.incarnation, m.machine)
	}
	return s, nil
}

// Inspect returns the holders and waiters of a lock.
func (m *Backend) Inspect(ctx context.Context, resource fencing.Resource) (engine.Status, error) {
	m.mu.Lock()
	defer m.unlock()
	if err := m.ready(ctx); err != nil {
		return engine.Status{}, err
	}
	status := m.machine.Inspect(resource)
	status.Mode = modeOf(m.policies, resource)
	for i, h := range status.Holders {
		status.Holders[i].TTL = m.lessor.Left(m.clock.Now(), h.Session)
	}
	return status, nil
}

// Watch calls changed with the status of a lock, and again after each change.
func (m *Backend) Watch(ctx context.Context, resource fencing.Resource, changed func(engine.Status)) error {
	w := hub.NewWatcher()
	defer m.hub.Watch(resource, w)()
	return w.Follow(ctx, func() (engine.Status, error) { return m.Inspect(ctx, resource) }, changed)
}

// Break ends the lease with this token.
func (m *Backend) Break(ctx context.Context, resource fencing.Resource, token fencing.Token) error {
	result, err := m.call(ctx, &machine.Break{Resource: resource, Token: token})
	if err == nil && result.Code != machine.Done {
		err = fmt.Errorf("break %q: %w with token %d", string(resource), engine.ErrNotHeld, token)
	}
	return err
}

// call validates and applies a command of a caller.
func (m *Backend) call(ctx context.Context, c machine.Command) (machine.Result, error) {
	if err := machine.Validate(c); err != nil {
		return machine.Result{}, err
	}
	m.mu.Lock()
	defer m.unlock()
	if err := m.ready(ctx); err != nil {
		return machine.Result{}, err
	}
	return m.apply(c), nil
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

// read calls look with the machine.
func (m *Backend) read(look func(*machine.Machine)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	look(m.machine)
}

// apply applies a command, and updates the hub and the deadlines. The caller holds mu.
func (m *Backend) apply(c machine.Command) machine.Result {
	result, events := m.machine.Apply(c)
	m.callbacks = append(m.callbacks, m.hub.Applied(m.machine, c, result, events, engine.Instant{})...)
	if lessor.Affects(c, events) {
		known := result
		if known.Code == machine.Ending { // endRequests continues without the lessor
			known.Code = machine.Done
		}
		m.lessor.Applied(m.clock.Now(), c, known, events)
		m.schedule()
	}
	return result
}

// schedule sets the timer to the next deadline. The caller holds mu.
func (m *Backend) schedule() {
	if m.timer != nil {
		m.timer.Stop()
	}
	if m.lessor.Pending() > 0 {
		m.timer = time.AfterFunc(m.lessor.Wait(m.clock.Now()), m.expire)
	}
}

// expire ends sessions and lock delays whose time has passed.
func (m *Backend) expire() {
	m.mu.Lock()
	commands, _ := m.lessor.Due(m.clock.Now())
	for _, c := range commands {
		m.apply(c)
	}
	m.schedule()
	m.unlock()
	m.endRequests()
}

// endRequests ends the requests of sessions that have ended, some at a time, so that the
// calls of others come in between.
func (m *Backend) endRequests() {
	for more := true; more; {
		m.mu.Lock()
		more = m.machine.HasEnding() && m.apply(&machine.EndRequests{Max: machine.MaxEndRequests}).Code == machine.Ending
		m.unlock()
	}
}
