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

// process is one program that uses leases: a client of the product, its clock,
// and the border that all it says and hears crosses. A paused process says and
// hears nothing. Its timers fire, but nothing that they do can leave it.
type process struct {
	story  *story
	name   string
	number int
	clock  *clock
	client *lease.Client
	// rename is how the judge knows a grant.
	rename func(property.Attempt, fencing.Token) property.Attempt
	// disconnect ends its way to the service.
	disconnect func()
	post       *post // nil if what it says arrives at once

	mu     sync.Mutex
	paused chan struct{} // closed when it goes on; nil while it runs
	held   map[held]property.Attempt
	ended  map[property.Attempt]bool
	gone   bool           // nobody is left to hear of anything
	work   sync.WaitGroup // of the service only while not gone
}

// held is how a lease is found again.
type held struct {
	resource fencing.Resource
	token    fencing.Token
}

// newProcess starts a process. connect is its way to the service.
func newProcess(s *story, number int, rate float64, connect func(*process) (engine.Backend, error), policy engine.Policy) (*process, error) {
	p := &process{story: s, name: fmt.Sprint("client ", number), number: number, clock: newClock(rate),
		held: map[held]property.Attempt{}, ended: map[property.Attempt]bool{},
		rename: func(a property.Attempt, _ fencing.Token) property.Attempt { return a }}
	backend, err := connect(p)
	if err != nil {
		return nil, err
	}
	p.client, err = lease.New(border{backend, p}, lease.WithClock(p.clock), lease.WithPolicies(policy), lease.WithName(p.name))
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

// pause makes the process stand still. It reports whether it ran before.
func (p *process) pause() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.paused != nil {
		return false
	}
	p.paused = make(chan struct{})
	p.story.tell(property.Event{Kind: property.Paused, Who: p.name})
	return true
}

func (p *process) resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.paused != nil {
		p.story.tell(property.Event{Kind: property.Resumed, Who: p.name})
		close(p.paused)
		p.paused = nil
	}
}

// told notes a grant that has crossed the border.
func (p *process) told(attempt property.Attempt, name fencing.Resource, token fencing.Token) {
	attempt = p.rename(attempt, token)
	p.mu.Lock()
	p.held[held{name, token}] = attempt
	p.mu.Unlock()
	p.story.tell(property.Event{Kind: property.Acquired, Who: p.name, Resource: name, Attempt: attempt, Token: token})
}

// begin notes that work begins, and reports false if it is over already.
func (p *process) begin(name fencing.Resource, token fencing.Token) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended[p.held[held{name, token}]] {
		return false
	}
	p.story.begins(name, token)
	return true
}

// over tells, once, that the process works under a grant no more.
func (p *process) over(name fencing.Resource, token fencing.Token) {
	p.mu.Lock()
	attempt, known := p.held[held{name, token}]
	first := known && !p.ended[attempt]
	p.ended[attempt] = true
	p.mu.Unlock()
	if first {
		p.story.ends(name, token)
		p.story.tell(property.Event{Kind: property.Ended, Who: p.name, Resource: name, Attempt: attempt, Token: token})
	}
}

// hear takes news from the service, which must not be blocked by a pause.
func (p *process) hear(news func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.gone {
		p.work.Go(news)
	}
}

// close ends the client. What it could not tell the service runs out.
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
		return fmt.Errorf("%s cannot be closed: %w", p.name, err)
	}
	return nil
}

// border is a engine.Backend as a process sees it.
type border struct {
	engine.Backend
	process *process
}

// Open starts a session.
func (b border) Open(ctx context.Context, config engine.SessionConfig) (engine.Session, error) {
	s := &borderSession{process: b.process, id: config.ID, grants: map[engine.Nonce]held{}}
	if lost := config.Lost; lost != nil {
		config.Lost = func(nonce engine.Nonce, err error) {
			b.process.hear(func() {
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

// Inspect tells who holds a lock.
func (b border) Inspect(ctx context.Context, resource fencing.Resource) (engine.Status, error) {
	b.process.step()
	defer b.process.step()
	return b.Backend.Inspect(ctx, resource)
}

// borderSession tells the judge what is asked for and granted.
type borderSession struct {
	process *process
	id      engine.SessionID
	inner   engine.Session

	mu     sync.Mutex
	grants map[engine.Nonce]held
}

func attemptOf(id engine.SessionID, nonce engine.Nonce) property.Attempt {
	return property.Attempt(fmt.Sprintf("%s:%d", id.String()[:12], nonce))
}

// Acquire asks for a grant.
func (s *borderSession) Acquire(ctx context.Context, request engine.Request) (engine.Grant, error) {
	p, name, attempt := s.process, request.Resources[0], attemptOf(s.id, request.Nonce)
	p.step()
	p.story.tell(property.Event{Kind: property.Requested, Who: p.name, Resource: name, Attempt: attempt})
	grant, err := send(ctx, p, func(ctx context.Context) (engine.Grant, error) { return s.inner.Acquire(ctx, request) })
	p.step()
	switch {
	case err == nil:
		s.mu.Lock()
		s.grants[request.Nonce] = held{name, grant.Token}
		s.mu.Unlock()
		p.told(attempt, name, grant.Token)
	case errors.Is(err, engine.ErrHeld) && !errors.Is(err, engine.ErrUncertain) && ctx.Err() == nil:
		p.story.tell(property.Event{Kind: property.Denied, Who: p.name, Resource: name, Attempt: attempt})
	}
	return grant, err
}

// over tells that a grant is used no more.
func (s *borderSession) over(nonce engine.Nonce) {
	s.mu.Lock()
	h, ok := s.grants[nonce]
	s.mu.Unlock()
	if ok {
		s.process.over(h.resource, h.token)
	}
}

// Renew prolongs the session.
func (s *borderSession) Renew(ctx context.Context) ([]engine.Nonce, error) {
	s.process.step()
	defer s.process.step()
	return send(ctx, s.process, s.inner.Renew)
}

// Release ends an attempt.
func (s *borderSession) Release(ctx context.Context, nonce engine.Nonce) error {
	s.process.step()
	s.over(nonce)
	defer s.process.step()
	_, err := send(ctx, s.process, func(ctx context.Context) (struct{}, error) { return struct{}{}, s.inner.Release(ctx, nonce) })
	return err
}

// Close ends the session.
func (s *borderSession) Close(ctx context.Context) error {
	s.process.step()
	s.mu.Lock()
	nonces := slices.Collect(maps.Keys(s.grants))
	s.mu.Unlock()
	for _, nonce := range nonces {
		s.over(nonce)
	}
	defer s.process.step()
	return s.inner.Close(ctx)
}
