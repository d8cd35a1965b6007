package redlockadapter

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/leased-project/leased/lease/engine"
)

// session is a engine.Session. It lives in this process: the nodes know only
// leases. It remembers what became of each nonce, so that an attempt that is
// asked for again has one outcome.
type session struct {
	backend *Backend
	config  engine.SessionConfig

	mu      sync.Mutex
	closed  bool
	known   map[engine.Nonce]*known
	ended   map[engine.Nonce]bool // released within the last TTL or two
	before  map[engine.Nonce]bool // ended, one TTL earlier
	rotated engine.Instant
	leaving map[engine.Nonce]engine.Held // released, but not confirmed by a majority
}

// known is what the session knows of a nonce.
type known struct {
	working chan struct{} // held while an Acquire works on it
	gone    chan struct{} // closed when the nonce is released
	granted *attempt
	sent    engine.Instant // before the acquire or the last renewal was sent
}

// Open starts a session. The nodes know no sessions, so nothing is asked of them.
func (b *Backend) Open(ctx context.Context, config engine.SessionConfig) (engine.Session, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err := b.checkTTL(config.TTL); err != nil {
		return nil, err
	}
	if config.Clock == nil {
		config.Clock = engine.SystemClock()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, fmt.Errorf("%w: %w", engine.ErrUnavailable, errClosed)
	}
	s := b.sessions[config.ID]
	if s == nil {
		s = &session{backend: b, config: config, known: map[engine.Nonce]*known{}, ended: map[engine.Nonce]bool{},
			leaving: map[engine.Nonce]engine.Held{}, rotated: b.clock.Now()}
		b.sessions[config.ID] = s
	}
	return s, nil
}

// begin returns what is known of a nonce, with its working lock held. The caller
// calls finish.
func (s *session) begin(ctx context.Context, nonce engine.Nonce) (*known, error) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil, fmt.Errorf("%w: the session is closed", engine.ErrNotHeld)
	}
	if s.ended[nonce] || s.before[nonce] {
		s.mu.Unlock()
		return nil, endedError(nonce)
	}
	k := s.known[nonce]
	if k == nil {
		k = &known{working: make(chan struct{}, 1), gone: make(chan struct{})}
		s.known[nonce] = k
	}
	s.mu.Unlock()
	select {
	case k.working <- struct{}{}:
		return k, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// finish ends the work on a nonce. One that came to nothing is forgotten: if it is
// asked for again it is tried again.
func (s *session) finish(nonce engine.Nonce, k *known) {
	s.mu.Lock()
	if s.known[nonce] == k && k.granted == nil {
		delete(s.known, nonce)
	}
	s.mu.Unlock()
	<-k.working
}

// Acquire asks for a grant.
func (s *session) Acquire(ctx context.Context, request engine.Request) (engine.Grant, error) {
	k, err := s.begin(ctx, request.Nonce)
	if err != nil {
		return engine.Grant{}, err
	}
	defer s.finish(request.Nonce, k)
	s.mu.Lock()
	a := k.granted
	s.mu.Unlock()
	if a != nil {
		return s.acquireAgain(ctx, k, a)
	}
	a, err = s.backend.acquire(ctx, k.gone, s.config.Clock, s.config.ID, s.config.TTL, &request)
	if err != nil {
		return engine.Grant{}, err
	}
	s.mu.Lock()
	if s.known[request.Nonce] == k && !s.closed {
		k.granted, k.sent = a, a.sent
		s.mu.Unlock()
		return a.grant(), nil
	}
	s.mu.Unlock()
	_ = s.backend.Release(context.WithoutCancel(ctx), a.Held) // it was released while it was acquired
	return engine.Grant{}, endedError(request.Nonce)
}

// acquireAgain answers a repeated Acquire of what is held. The caller counts the
// lease's time from this call, so it is renewed first.
func (s *session) acquireAgain(ctx context.Context, k *known, a *attempt) (engine.Grant, error) {
	sent := s.config.Clock.Now()
	err := s.renew(ctx, []engine.Nonce{a.Nonce})[a.Nonce]
	switch {
	case errors.Is(err, engine.ErrLost):
		return engine.Grant{}, endedError(a.Nonce)
	case err != nil:
		return engine.Grant{}, fmt.Errorf("%w: granted, but not renewed: %w", engine.ErrUncertain, err)
	}
	grant := a.grant()
	grant.Sent = sent
	return grant, nil
}

// Renew extends every grant of the session. Grants that could not be extended are
// returned; those that are lost are reported to Lost.
func (s *session) Renew(ctx context.Context) ([]engine.Nonce, error) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil, fmt.Errorf("%w: the session is closed", engine.ErrNotHeld)
	}
	var nonces []engine.Nonce
	for nonce, k := range s.known {
		if k.granted != nil {
			nonces = append(nonces, nonce)
		}
	}
	s.mu.Unlock()
	var failed []engine.Nonce
	var last error
	for nonce, err := range s.renew(ctx, nonces) {
		if err != nil && !errors.Is(err, engine.ErrLost) {
			failed, last = append(failed, nonce), err
		}
	}
	if len(failed) > 0 && len(failed) == len(nonces) {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, last
	}
	return failed, nil
}

// renew extends grants, ends those that are lost, and returns the outcome of each.
func (s *session) renew(ctx context.Context, nonces []engine.Nonce) map[engine.Nonce]error {
	sent := s.config.Clock.Now()
	outcome := make(map[engine.Nonce]error, len(nonces))
	var leases []engine.Held
	s.mu.Lock()
	for _, nonce := range nonces {
		k := s.known[nonce]
		switch {
		case k == nil || k.granted == nil:
			outcome[nonce] = fmt.Errorf("%w: attempt %d has ended", engine.ErrNotHeld, nonce)
		case sent.Since(k.sent) >= s.config.TTL: // others may hold it by now
			outcome[nonce] = fmt.Errorf("%w: it was not renewed in time", engine.ErrExpired)
		default:
			leases = append(leases, k.granted.Held)
		}
	}
	s.mu.Unlock()
	for i, err := range s.backend.Renew(ctx, leases) {
		outcome[leases[i].Nonce] = err
	}
	for nonce, err := range outcome {
		s.renewed(nonce, sent, err)
	}
	return outcome
}

// renewed notes the outcome of a renewal.
func (s *session) renewed(nonce engine.Nonce, sent engine.Instant, err error) {
	s.mu.Lock()
	k := s.known[nonce]
	if k == nil || k.granted == nil {
		s.mu.Unlock()
		return
	}
	a := k.granted
	if err == nil {
		k.sent = sent
	}
	lost := errors.Is(err, engine.ErrLost)
	if lost {
		k.granted = nil
		delete(s.known, nonce)
	}
	s.mu.Unlock()
	if lost {
		s.backend.abandon(a.Held) // also what expired here, but not yet on the nodes
		if s.config.Lost != nil {
			s.config.Lost(nonce, err)
		}
	}
}

// Release ends the attempt, whatever its state.
func (s *session) Release(ctx context.Context, nonce engine.Nonce) error {
	if a := s.end(nonce); a != nil {
		s.mu.Lock()
		s.leaving[nonce] = a.Held
		s.mu.Unlock()
	}
	s.mu.Lock()
	h, ok := s.leaving[nonce]
	s.mu.Unlock()
	if !ok {
		return nil // nothing of it is left, and nothing can be granted any more
	}
	err := s.backend.Release(ctx, h)
	if err == nil {
		s.mu.Lock()
		delete(s.leaving, nonce)
		s.mu.Unlock()
	}
	return err
}

// end notes that a nonce was released, and returns its grant if it has one.
func (s *session) end(nonce engine.Nonce) *attempt {
	now := s.backend.clock.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Since(s.rotated) > s.config.TTL {
		for old := range s.before {
			delete(s.leaving, old) // it has expired by itself
		}
		s.ended, s.before, s.rotated = map[engine.Nonce]bool{}, s.ended, now
	}
	s.ended[nonce] = true
	k := s.known[nonce]
	if k == nil {
		return nil
	}
	delete(s.known, nonce)
	close(k.gone)
	return k.granted
}

// Close ends the session and releases everything in it.
func (s *session) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	var nonces []engine.Nonce
	for nonce := range s.known {
		nonces = append(nonces, nonce)
	}
	s.mu.Unlock()
	s.backend.forget(s)
	var under []*releasing
	for _, nonce := range nonces {
		if a := s.end(nonce); a != nil && s.backend.granted.take(a.Name) != nil {
			under = append(under, s.backend.queues.release(a))
		}
	}
	var failed []error
	for _, r := range under {
		if err := r.await(ctx); err != nil {
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}

// lose tells the session that one of its leases was broken.
func (s *session) lose(nonce engine.Nonce, err error) {
	s.mu.Lock()
	k := s.known[nonce]
	lost := k != nil && k.granted != nil
	if lost {
		k.granted = nil
		delete(s.known, nonce)
	}
	s.mu.Unlock()
	if lost && s.config.Lost != nil {
		s.config.Lost(nonce, err)
	}
}
