package virtual

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/proptest/property"
)

// process is a program that uses leases: a lease.Client, its clock, and the boundary that
// all its messages cross. A paused process sends and receives nothing. Its timers fire
// without effect on others.
type process struct {
	history *history
	name    string
	number  int
	clock   *clock
	client  *lease.Client
	// rename returns the identity of a grant for the property checker.
	rename func(property.Attempt, fencing.Token) property.Attempt
	// disconnect closes its connection to the service.
	disconnect func()
	delivery   *delivery // nil for direct calls

	mu     sync.Mutex
	paused chan struct{} // closed on resume; nil while it runs
	held   map[held]property.Attempt
	ended  map[property.Attempt]bool
	gone   bool           // it is closed
	work   sync.WaitGroup // no new work once gone
}

// held identifies a lease.
type held struct {
	resource fencing.Resource
	token    fencing.Token
}

// newProcess starts a process. connect returns its backend.
func newProcess(s *history, number int, rate float64, connect func(*process) (engine.Backend, error),
	policy engine.Policy) (*process, error) {
	p := &process{history: s, name: fmt.Sprint("client ", number), number: number, clock: newClock(rate),
		held: map[held]property.Attempt{}, ended: map[property.Attempt]bool{},
		rename: func(a property.Attempt, _ fencing.Token) property.Attempt { return a }}
	backend, err := connect(p)
	if err != nil {
		return nil, err
	}
	p.client, err = lease.New(boundary{backend, p}, lease.WithClock(p.clock), lease.WithPolicies(policy),
		lease.WithName(p.name))
	return p, err
}

// step returns when the process runs.
func (p *process) step() {
	for {
		p.mu.Lock()
		paused := p.paused
		p.mu.Unlock()
		if paused == nil {
			return
		}
		<-paused
	}
}

// pause pauses the process. It reports whether the process was running.
func (p *process) pause() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.paused != nil {
		return false
	}
	p.paused = make(chan struct{})
	p.history.record(property.Event{Kind: property.Paused, Who: p.name})
	return true
}

func (p *process) resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.paused != nil {
		p.history.record(property.Event{Kind: property.Resumed, Who: p.name})
		close(p.paused)
		p.paused = nil
	}
}

// acquired records a grant that the process received.
func (p *process) acquired(attempt property.Attempt, name fencing.Resource, token fencing.Token) {
	attempt = p.rename(attempt, token)
	p.mu.Lock()
	p.held[held{name, token}] = attempt
	p.mu.Unlock()
	p.history.record(property.Event{Kind: property.Acquired, Who: p.name, Resource: name, Attempt: attempt, Token: token})
}

// begin records the start of work under a lease. It reports false if the lease has ended.
func (p *process) begin(name fencing.Resource, token fencing.Token) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended[p.held[held{name, token}]] {
		return false
	}
	p.history.begins(name, token)
	return true
}

// over records, once, that the process stops working under a grant.
func (p *process) over(name fencing.Resource, token fencing.Token) {
	p.mu.Lock()
	attempt, known := p.held[held{name, token}]
	first := known && !p.ended[attempt]
	p.ended[attempt] = true
	p.mu.Unlock()
	if first {
		p.history.ends(name, token)
		p.history.record(property.Event{Kind: property.Ended, Who: p.name, Resource: name, Attempt: attempt, Token: token})
	}
}

// receive handles a notification of the service, which a pause must not block.
func (p *process) receive(news func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.gone {
		p.work.Go(news)
	}
}

// close closes the client. Unreleased leases expire.
func (p *process) close() error {
	p.resume()
	p.clock.resume()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	err := p.client.Close(ctx)
	p.mu.Lock()
	p.gone = true
	p.mu.Unlock()
	p.work.Wait()
	if p.disconnect != nil {
		p.disconnect()
	}
	if ctx.Err() != nil {
		return fmt.Errorf("close %s: %w", p.name, err)
	}
	return nil
}

// boundary is the backend of a process.
type boundary struct {
	engine.Backend
	process *process
}

// Open starts a session.
func (b boundary) Open(ctx context.Context, config engine.SessionConfig) (engine.Session, error) {
	s := &boundarySession{process: b.process, id: config.ID, grants: map[engine.Nonce]held{}}
	if lost := config.Lost; lost != nil {
		config.Lost = func(nonce engine.Nonce, err error) {
			b.process.receive(func() {
				b.process.step()
				s.over(nonce)
				lost(nonce, err)
			})
		}
	}
	b.process.step()
	inner, err := b.Backend.Open(ctx, config)
	b.process.step()
	s.inner = inner
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Inspect returns holders and waiters.
func (b boundary) Inspect(ctx context.Context, resource fencing.Resource) (engine.Status, error) {
	b.process.step()
	defer b.process.step()
	return b.Backend.Inspect(ctx, resource)
}

// boundarySession records requests and grants.
type boundarySession struct {
	process *process
	id      engine.SessionID
	inner   engine.Session

	mu     sync.Mutex
	grants map[engine.Nonce]held
}

func attemptOf(id engine.SessionID, nonce engine.Nonce) property.Attempt {
	return property.Attempt(fmt.Sprintf("%s:%d", id.String()[:12], nonce))
}

// Acquire requests a grant.
func (s *boundarySession) Acquire(ctx context.Context, request engine.Request) (engine.Grant, error) {
	p, name, attempt := s.process, request.Resources[0], attemptOf(s.id, request.Nonce)
	p.step()
	p.history.record(property.Event{Kind: property.Requested, Who: p.name, Resource: name, Attempt: attempt})
	grant, err := send(ctx, p, func(ctx context.Context) (engine.Grant, error) { return s.inner.Acquire(ctx, request) })
	p.step()
	switch {
	case err == nil:
		s.mu.Lock()
		s.grants[request.Nonce] = held{name, grant.Token}
		s.mu.Unlock()
		p.acquired(attempt, name, grant.Token)
	case errors.Is(err, engine.ErrHeld) && !errors.Is(err, engine.ErrUncertain) && ctx.Err() == nil:
		p.history.record(property.Event{Kind: property.Denied, Who: p.name, Resource: name, Attempt: attempt})
	}
	return grant, err
}

// over records that a grant is no longer used.
func (s *boundarySession) over(nonce engine.Nonce) {
	s.mu.Lock()
	h, ok := s.grants[nonce]
	s.mu.Unlock()
	if ok {
		s.process.over(h.resource, h.token)
	}
}

// Renew extends the session.
func (s *boundarySession) Renew(ctx context.Context, held ...engine.Held) ([]engine.Nonce, error) {
	s.process.step()
	defer s.process.step()
	return send(ctx, s.process, func(ctx context.Context) ([]engine.Nonce, error) { return s.inner.Renew(ctx, held...) })
}

// Update renews a lease.
func (s *boundarySession) Update(ctx context.Context, held engine.Held) error {
	_, err := send(ctx, s.process, func(ctx context.Context) (struct{}, error) {
		return struct{}{},
			s.inner.Update(ctx, held)
	})
	return err
}

// Release ends an attempt.
func (s *boundarySession) Release(ctx context.Context, held engine.Held) error {
	s.process.step()
	s.over(held.Nonce)
	defer s.process.step()
	_, err := send(ctx, s.process, func(ctx context.Context) (struct{}, error) {
		return struct{}{},
			s.inner.Release(ctx, held)
	})
	return err
}

// Close ends the session.
func (s *boundarySession) Close(ctx context.Context, held ...engine.Held) error {
	s.process.step()
	s.mu.Lock()
	nonces := slices.Collect(maps.Keys(s.grants))
	s.mu.Unlock()
	for _, nonce := range nonces {
		s.over(nonce)
	}
	defer s.process.step()
	return s.inner.Close(ctx, held...)
}
