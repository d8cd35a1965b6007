package client

import (
	"context"
	"errors"
	"sync"

	"github.com/leased-project/leased/lease/engine"
)

// Renew extends the grants of both modes. If only one mode can be reached, it returns
// the grants of the other mode as not renewed.
func (s *session) Renew(ctx context.Context) ([]engine.Nonce, error) {
	var (
		wg             sync.WaitGroup
		correctnessErr error
	)
	part := s.renewable()
	if part != nil {
		wg.Go(func() { correctnessErr = s.renewCorrectness(ctx, part) })
	}
	failed, efficiencyErr := s.efficiency.Renew(ctx)
	wg.Wait()
	switch {
	case correctnessErr != nil && (efficiencyErr != nil || len(s.efficiency.Nonces()) == 0):
		return nil, errors.Join(correctnessErr, efficiencyErr)
	case efficiencyErr != nil && (part == nil || len(s.heldIn(part)) == 0):
		return nil, efficiencyErr
	case correctnessErr != nil:
		failed = append(failed, s.heldIn(part)...)
	case efficiencyErr != nil:
		failed = append(failed, s.efficiency.Nonces()...)
	}
	return failed, nil
}

// renewCorrectness extends the session of the service. If it is lost, its leases were
// reported, and the next acquire opens another one.
func (s *session) renewCorrectness(ctx context.Context, part *serviceSession) error {
	_, err := part.Renew(ctx)
	if errors.Is(err, engine.ErrLost) {
		s.drop(part)
		return nil
	}
	return err
}

// renewable returns the session of the service if it is in use. One that was not used
// since the last renewal is closed: while there is no leader, its renewal would only
// delay the renewal of the other leases.
func (s *session) renewable() *serviceSession {
	s.mu.Lock()
	part := s.correctness
	if part == nil {
		s.mu.Unlock()
		return nil
	}
	busy := part.users > 0 || part.used
	for _, at := range s.attempts {
		busy = busy || at.session == part
	}
	part.used = false
	if !busy {
		s.correctness = nil
	}
	s.mu.Unlock()
	if busy {
		return part
	}
	s.efficiency.Background(closeTimeout, func(ctx context.Context) { _ = part.Close(ctx) }) // otherwise it ends with its TTL
	return nil
}

// heldIn returns the attempts that may be held in a session of the service.
func (s *session) heldIn(part *serviceSession) []engine.Nonce {
	s.mu.Lock()
	defer s.mu.Unlock()
	var nonces []engine.Nonce
	for nonce, at := range s.attempts {
		if at.session == part {
			nonces = append(nonces, nonce)
		}
	}
	return nonces
}

// Close ends the session and releases every grant in it.
func (s *session) Close(ctx context.Context) error {
	s.router.mu.Lock()
	delete(s.router.sessions, s)
	s.router.mu.Unlock()
	s.mu.Lock()
	part := s.correctness
	s.mu.Unlock()
	var wg sync.WaitGroup
	var serviceErr error
	if part != nil {
		wg.Go(func() {
			if serviceErr = part.Close(ctx); serviceErr == nil || errors.Is(serviceErr, engine.ErrLost) {
				serviceErr = nil
				s.drop(part)
			}
		})
	}
	err := s.efficiency.Close(ctx)
	wg.Wait()
	return errors.Join(err, serviceErr)
}
