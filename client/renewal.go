package client

import (
	"context"
	"errors"
	"sync"

	"github.com/leased-project/leased/lease/engine"
)

// Renew extends the grants of both modes. If one mode cannot be reached only its
// grants are returned as not renewed.
func (s *session) Renew(ctx context.Context) ([]engine.Nonce, error) {
	var (
		wg                   sync.WaitGroup
		strictErr            error
		strictOnly, fastOnly []engine.Nonce
	)
	sub := s.renewable()
	if sub != nil {
		wg.Go(func() { strictErr = s.renewStrict(ctx, sub) })
	}
	failed, fastErr := s.fast.Renew(ctx)
	wg.Wait()
	if strictErr != nil {
		strictOnly = s.heldIn(sub)
	}
	if fastErr != nil {
		fastOnly = s.fast.Nonces()
	}
	switch {
	case strictErr != nil && (fastErr != nil || len(s.fast.Nonces()) == 0):
		return nil, errors.Join(strictErr, fastErr)
	case fastErr != nil && (sub == nil || len(s.heldIn(sub)) == 0):
		return nil, fastErr
	}
	return append(append(failed, strictOnly...), fastOnly...), nil
}

// renewStrict extends the strict session. If it is lost, its leases have been told
// so, and the next acquire opens another one.
func (s *session) renewStrict(ctx context.Context, sub *strict) error {
	_, err := sub.Renew(ctx)
	if errors.Is(err, engine.ErrLost) {
		s.drop(sub)
		return nil
	}
	return err
}

// renewable returns the strict session if it is in use. One that was not used since
// the last renewal is closed: it would be renewed for nothing, and when there is no
// leader the renewal of the other leases would wait for it.
func (s *session) renewable() *strict {
	s.mu.Lock()
	sub := s.strict
	if sub == nil {
		s.mu.Unlock()
		return nil
	}
	busy := sub.users > 0 || sub.used
	for _, at := range s.went {
		busy = busy || at.strict == sub
	}
	sub.used = false
	if !busy {
		s.strict = nil
	}
	s.mu.Unlock()
	if busy {
		return sub
	}
	s.background(func(ctx context.Context) { _ = sub.Close(ctx) }) // else it ends with its TTL
	return nil
}

// heldIn returns the attempts that may be held in a strict session.
func (s *session) heldIn(sub *strict) []engine.Nonce {
	s.mu.Lock()
	defer s.mu.Unlock()
	var nonces []engine.Nonce
	for nonce, at := range s.went {
		if at.strict == sub {
			nonces = append(nonces, nonce)
		}
	}
	return nonces
}

// Close ends the session and releases everything in it.
func (s *session) Close(ctx context.Context) error {
	s.router.mu.Lock()
	delete(s.router.sessions, s)
	s.router.mu.Unlock()
	s.mu.Lock()
	s.closed = true
	sub := s.strict
	s.strict = nil
	clear(s.went)
	s.mu.Unlock()
	var wg sync.WaitGroup
	var strictErr error
	if sub != nil {
		wg.Go(func() {
			if strictErr = sub.Close(ctx); errors.Is(strictErr, engine.ErrLost) {
				strictErr = nil
			}
		})
	}
	err := s.fast.Close(ctx)
	wg.Wait()
	s.work.Wait()
	return errors.Join(err, strictErr)
}
