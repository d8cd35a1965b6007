package perlease

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/leased-project/leased/lease/engine"
)

// maxRelease bounds a release in the background.
const maxRelease = 5 * time.Second

// Session is an engine.Session on an Engine. It exists only in this process. All
// methods may be called concurrently.
type Session struct {
	engine Engine
	config engine.SessionConfig
	work   sync.WaitGroup // of Background

	mu       sync.Mutex
	closed   bool
	attempts map[engine.Nonce]*attempt
	ended    endedAttempts
}

// attempt is an acquisition attempt.
type attempt struct {
	held    engine.Held   // without a name until it is granted
	working chan struct{} // a mutex: held while an Acquire works on it

	// Guarded by the session's mu.
	over      bool               // the nonce was released
	cancel    context.CancelFunc // ends the Acquire that works on it; nil if there is none
	uncertain bool               // an acquire without an answer may have been granted
	granted   bool               // held has a name and a token
	sent      engine.Instant     // before the acquire or the last renewal was sent
}

var _ engine.Session = (*Session)(nil)

// NewSession returns a session on an engine. It does not call the engine.
func NewSession(calls Engine, config engine.SessionConfig) *Session {
	config.Clock = cmp.Or(config.Clock, engine.SystemClock())
	return &Session{engine: calls, config: config, attempts: map[engine.Nonce]*attempt{}}
}

// Acquire requests a grant.
func (s *Session) Acquire(ctx context.Context, request engine.Request) (engine.Grant, error) {
	a, err := s.begin(ctx, &request)
	if err != nil {
		return engine.Grant{}, err
	}
	defer s.finish(a)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.mu.Lock()
	granted, uncertain, sent := a.granted, a.uncertain, a.sent
	a.cancel = cancel
	if a.over {
		cancel()
	}
	s.mu.Unlock()
	if granted {
		if s.config.Clock.Now().Since(sent) >= s.config.TTL {
			return engine.Grant{}, endedError(request.Nonce)
		}
		return engine.Grant{Token: a.held.Token, Mode: engine.Efficiency, Sent: sent}, nil
	}
	if uncertain { // what it may have acquired would block this attempt for a TTL
		_ = s.engine.Release(ctx, a.held)
	}
	sent = s.config.Clock.Now()
	held, err := s.engine.Acquire(ctx, s.config.ID, s.config.TTL, request)
	if err != nil {
		return engine.Grant{}, s.failed(a, err)
	}
	if s.config.Clock.Now().Since(sent) > s.config.TTL/3 { // the moment of the grant is unknown
		sent = s.config.Clock.Now()
		if err := s.engine.Renew(ctx, []engine.Held{held})[0]; err != nil {
			s.releaseLater(held)
			return engine.Grant{}, fmt.Errorf("%w: the lease was granted after a long wait, but could not be renewed: %s",
				engine.ErrUnavailable, err.Error())
		}
	}
	s.mu.Lock()
	if a.over || s.closed {
		s.mu.Unlock()
		s.releaseLater(held) // it was released while it was acquired
		return engine.Grant{}, endedError(request.Nonce)
	}
	a.held, a.granted, a.sent, a.uncertain = held, true, sent, false
	s.mu.Unlock()
	return engine.Grant{Token: held.Token, Mode: engine.Efficiency, Sent: sent}, nil
}

// stop ends an attempt, and the Acquire that works on it. The caller holds the session's mu.
func (a *attempt) stop() {
	a.over = true
	if a.cancel != nil {
		a.cancel()
	}
}

// begin returns the attempt of a request, with its mutex held. The caller calls
// finish.
func (s *Session) begin(ctx context.Context, request *engine.Request) (*attempt, error) {
	s.mu.Lock()
	a := s.attempts[request.Nonce]
	switch {
	case s.closed:
		s.mu.Unlock()
		return nil, fmt.Errorf("%w: the session is closed", engine.ErrNotHeld)
	case s.hasEnded(request.Nonce):
		s.mu.Unlock()
		return nil, endedError(request.Nonce)
	case a == nil:
		a = &attempt{working: make(chan struct{}, 1), held: engine.Held{Session: s.config.ID, Nonce: request.Nonce,
			Resources: request.Resources, TTL: s.config.TTL, Holder: request.Holder, Metadata: request.Metadata}}
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

// finish ends the work on an attempt, and deletes an attempt that certainly has no
// grant.
func (s *Session) finish(a *attempt) {
	s.mu.Lock()
	a.cancel = nil
	if !a.granted && !a.uncertain && s.attempts[a.held.Nonce] == a {
		delete(s.attempts, a.held.Nonce)
		a.over = true
	}
	s.mu.Unlock()
	<-a.working
}

// failed records that an acquire failed, and whether its outcome is certain.
func (s *Session) failed(a *attempt, err error) error {
	s.mu.Lock()
	released := a.over
	unknown := !certain(err)
	a.uncertain = a.uncertain || unknown
	s.mu.Unlock()
	if unknown && released { // no later call will release it
		s.releaseLater(a.held)
	}
	switch {
	case released:
		return endedError(a.held.Nonce)
	case errors.Is(err, engine.ErrLost): // the session is not lost
		return fmt.Errorf("%w: %s", engine.ErrUncertain, err.Error())
	}
	return err
}

// certain reports whether err says that the call was not granted.
func certain(err error) bool {
	return engine.Refused(err) || errors.Is(err, engine.ErrUnavailable) && !errors.Is(err, engine.ErrUncertain)
}

// endedError is the error of an attempt that was released.
func endedError(nonce engine.Nonce) error {
	return fmt.Errorf("%w: attempt %d has ended", engine.ErrHeld, nonce)
}

// releaseLater releases a lease in the background.
func (s *Session) releaseLater(held engine.Held) {
	s.Background(min(maxRelease, held.TTL), func(ctx context.Context) {
		_ = s.engine.Release(ctx, held) // otherwise it ends with its TTL
	})
}

// Background runs f with a time limit, and Close waits for it. If the session is
// closed already, Background returns after f.
func (s *Session) Background(limit time.Duration, f func(context.Context)) {
	limited := func() {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		f(ctx)
	}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		limited()
		return
	}
	s.work.Go(limited)
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

// Withdraw releases in the background what an attempt may hold here. Unlike after
// Release, the attempt may be repeated. It returns an error if the attempt has ended.
func (s *Session) Withdraw(nonce engine.Nonce) error {
	s.mu.Lock()
	if s.hasEnded(nonce) {
		s.mu.Unlock()
		return endedError(nonce)
	}
	a := s.attempts[nonce]
	needed := a != nil && (a.granted || a.uncertain)
	delete(s.attempts, nonce)
	if a != nil {
		a.stop()
	}
	s.mu.Unlock()
	if needed {
		s.releaseLater(a.held)
	}
	return nil
}

// hasEnded reports whether an attempt was released or lost. One whose release failed
// is still in attempts. The caller holds mu.
func (s *Session) hasEnded(nonce engine.Nonce) bool {
	if a := s.attempts[nonce]; a != nil {
		return a.over
	}
	return s.ended.has(nonce)
}

// end marks an attempt as ended, so that a late copy of its acquire is refused. The
// caller holds mu.
func (s *Session) end(nonce engine.Nonce) {
	s.ended.add(nonce)
	delete(s.attempts, nonce)
}

// release releases an attempt, after an Acquire that is under way.
func (s *Session) release(ctx context.Context, a *attempt) error {
	s.mu.Lock()
	a.stop()
	s.mu.Unlock()
	select {
	case a.working <- struct{}{}:
		defer func() { <-a.working }()
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", engine.ErrUncertain, context.Cause(ctx))
	}
	s.mu.Lock()
	needed := a.granted || a.uncertain
	s.mu.Unlock()
	if !needed {
		return nil
	}
	return s.engine.Release(ctx, a.held)
}
