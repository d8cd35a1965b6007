package perlease

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/leased-project/leased/lease/engine"
)

// maxCleanup bounds one call that ends what nobody wants.
const maxCleanup = 5 * time.Second

// Session is a engine.Session on an Engine. It lives in this process alone. All
// methods may be called concurrently.
type Session struct {
	engine Engine
	config engine.SessionConfig
	work   sync.WaitGroup // releases in the background

	mu       sync.Mutex
	closed   bool
	attempts map[engine.Nonce]*attempt
	ended    map[engine.Nonce]bool // released within the last TTL or two
	before   map[engine.Nonce]bool // ended, one TTL earlier
	rotated  engine.Instant
}

// attempt is what the session knows of a nonce.
type attempt struct {
	held    engine.Held        // without a name until it is granted
	working chan struct{}      // held while an Acquire works on it
	ctx     context.Context    // ends when the nonce is released
	cancel  context.CancelFunc // of ctx

	// Guarded by the session's mu.
	unsure  bool           // an acquire may have been granted unheard
	granted bool           // held has a name and a token
	sent    engine.Instant // before the acquire or the last renewal was sent
}

var _ engine.Session = (*Session)(nil)

// NewSession returns a session on an engine. Nothing is asked of the engine.
func NewSession(calls Engine, config engine.SessionConfig) *Session {
	if config.Clock == nil {
		config.Clock = engine.SystemClock()
	}
	return &Session{engine: calls, config: config, attempts: map[engine.Nonce]*attempt{}, ended: map[engine.Nonce]bool{}, rotated: config.Clock.Now()}
}

// Acquire asks for a grant.
func (s *Session) Acquire(ctx context.Context, request engine.Request) (engine.Grant, error) {
	if err := request.Validate(); err != nil {
		return engine.Grant{}, err
	}
	a, err := s.begin(ctx, &request)
	if err != nil {
		return engine.Grant{}, err
	}
	defer s.finish(a)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(a.ctx, cancel)()
	s.mu.Lock()
	granted, unsure, sent := a.granted, a.unsure, a.sent
	s.mu.Unlock()
	if granted {
		if s.config.Clock.Now().Since(sent) >= s.config.TTL {
			return engine.Grant{}, endedError(request.Nonce)
		}
		return engine.Grant{Token: a.held.Token, Mode: engine.Efficiency, Sent: sent}, nil
	}
	if unsure { // its lock would block the next try for a TTL
		_ = s.engine.Release(ctx, a.held)
	}
	sent = s.config.Clock.Now()
	held, err := s.engine.Acquire(ctx, s.config.ID, s.config.TTL, request)
	if err != nil {
		return engine.Grant{}, s.refused(a, err)
	}
	if s.config.Clock.Now().Since(sent) > s.config.TTL/3 { // when it was granted is not known here
		sent = s.config.Clock.Now()
		if err := s.engine.Renew(ctx, []engine.Held{held})[0]; err != nil {
			s.abandon(held)
			return engine.Grant{}, fmt.Errorf("%w: granted after a long wait, but not renewed: %s", engine.ErrUnavailable, err.Error())
		}
	}
	s.mu.Lock()
	if a.ctx.Err() != nil || s.closed {
		s.mu.Unlock()
		s.abandon(held) // it was released while it was acquired
		return engine.Grant{}, endedError(request.Nonce)
	}
	a.held, a.granted, a.sent, a.unsure = held, true, sent, false
	s.mu.Unlock()
	return engine.Grant{Token: held.Token, Mode: engine.Efficiency, Sent: sent}, nil
}

// begin returns the attempt of a request, with its working lock held. The caller
// calls finish.
func (s *Session) begin(ctx context.Context, request *engine.Request) (*attempt, error) {
	s.mu.Lock()
	a := s.attempts[request.Nonce]
	switch {
	case s.closed:
		s.mu.Unlock()
		return nil, fmt.Errorf("%w: the session is closed", engine.ErrNotHeld)
	case s.ended[request.Nonce] || s.before[request.Nonce]:
		s.mu.Unlock()
		return nil, endedError(request.Nonce)
	case a == nil:
		a = &attempt{working: make(chan struct{}, 1), held: engine.Held{Session: s.config.ID, Nonce: request.Nonce, Resources: request.Resources,
			TTL: s.config.TTL, Holder: request.Holder, Metadata: request.Metadata}}
		a.ctx, a.cancel = context.WithCancel(context.Background())
		s.attempts[request.Nonce] = a
	}
	s.mu.Unlock()
	select {
	case a.working <- struct{}{}:
		return a, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// finish ends the work on an attempt. One that has certainly come to nothing is
// forgotten.
func (s *Session) finish(a *attempt) {
	s.mu.Lock()
	if !a.granted && !a.unsure && s.attempts[a.held.Nonce] == a {
		delete(s.attempts, a.held.Nonce)
		a.cancel()
	}
	s.mu.Unlock()
	<-a.working
}

// refused notes that an acquire has failed, and how sure that is.
func (s *Session) refused(a *attempt, err error) error {
	released := a.ctx.Err() != nil
	if !certain(err) {
		s.mu.Lock()
		a.unsure = true
		s.mu.Unlock()
		if released { // nobody will ask again
			s.abandon(a.held)
		}
	}
	switch {
	case released:
		return endedError(a.held.Nonce)
	case errors.Is(err, engine.ErrLost): // the session is not lost
		return fmt.Errorf("%w: %s", engine.ErrUncertain, err.Error())
	}
	return err
}

// certain reports whether err says that this call was granted nothing.
func certain(err error) bool {
	if errors.Is(err, engine.ErrUncertain) {
		return false
	}
	for _, sentinel := range []error{engine.ErrHeld, engine.ErrModeMismatch, engine.ErrUnsupported, engine.ErrInvalid, engine.ErrUnavailable} {
		if errors.Is(err, sentinel) {
			return true
		}
	}
	return false
}

// endedError is the answer to an attempt that was released.
func endedError(nonce engine.Nonce) error {
	return fmt.Errorf("%w: attempt %d has ended", engine.ErrHeld, nonce)
}

// abandon releases what nobody wants, in the background unless Close may have
// stopped waiting for that.
func (s *Session) abandon(held engine.Held) {
	release := func() {
		ctx, cancel := context.WithTimeout(context.Background(), min(maxCleanup, held.TTL))
		defer cancel()
		_ = s.engine.Release(ctx, held) // else it ends with its TTL
	}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		release()
		return
	}
	s.work.Go(release)
	s.mu.Unlock()
}

// Release ends the attempt, whatever its state.
func (s *Session) Release(ctx context.Context, nonce engine.Nonce) error {
	s.mu.Lock()
	a := s.attempts[nonce]
	s.end(nonce)
	s.mu.Unlock()
	if a == nil {
		return nil
	}
	err := s.release(ctx, a)
	if err != nil && !errors.Is(err, engine.ErrLost) {
		s.mu.Lock()
		if !s.closed {
			s.attempts[nonce] = a // so that a second Release finds it
		}
		s.mu.Unlock()
		return fmt.Errorf("release: %w", err)
	}
	return nil
}

// Ended reports whether a nonce was released lately, or lost.
func (s *Session) Ended(nonce engine.Nonce) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended[nonce] || s.before[nonce]
}

// Withdraw ends in the background what an attempt may have got here. Unlike Release
// it lets the attempt be made again.
func (s *Session) Withdraw(nonce engine.Nonce) {
	s.mu.Lock()
	a := s.attempts[nonce]
	needed := a != nil && (a.granted || a.unsure)
	delete(s.attempts, nonce)
	s.mu.Unlock()
	if a != nil {
		a.cancel()
	}
	if needed {
		s.abandon(a.held)
	}
}

// end notes that a nonce was released. A late copy of its acquire is refused for a
// TTL at least. The caller holds mu.
func (s *Session) end(nonce engine.Nonce) {
	if now := s.config.Clock.Now(); now.Since(s.rotated) > s.config.TTL {
		s.before, s.ended, s.rotated = s.ended, map[engine.Nonce]bool{}, now
	}
	s.ended[nonce] = true
	delete(s.attempts, nonce)
}

// release ends an attempt, after an Acquire that is under way.
func (s *Session) release(ctx context.Context, a *attempt) error {
	a.cancel()
	select {
	case a.working <- struct{}{}:
		defer func() { <-a.working }()
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", engine.ErrUncertain, context.Cause(ctx))
	}
	s.mu.Lock()
	needed := a.granted || a.unsure
	s.mu.Unlock()
	if !needed {
		return nil
	}
	return s.engine.Release(ctx, a.held)
}
