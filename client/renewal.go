package client

import (
	"context"
	"errors"
	"sync"

	"github.com/leased-project/leased/lease/engine"
)

// Renew extends the grants of both modes, and returns those of the modes that can be reached.
func (s *session) Renew(ctx context.Context) ([]engine.Nonce, error) {
	var (
		wg             sync.WaitGroup
		correctness    []engine.Nonce
		correctnessErr error
	)
	if part := s.renewable(); part != nil {
		wg.Go(func() { correctness, correctnessErr = s.renewCorrectness(ctx, part) })
	}
	extended, err := s.efficiency.Renew(ctx)
	wg.Wait()
	if extended = append(extended, correctness...); len(extended) == 0 {
		return nil, errors.Join(correctnessErr, err)
	}
	return extended, nil
}

// renewCorrectness extends the session of the service. If it is lost, its leases were
// reported, and the next acquire opens another one.
func (s *session) renewCorrectness(ctx context.Context, part *serviceSession) (extended []engine.Nonce, err error) {
	inner, err := part.Renew(ctx)
	if errors.Is(err, engine.ErrLost) {
		s.drop(part)
		return nil, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, nonce := range inner {
		if outer, ok := part.outer[nonce]; ok {
			extended = append(extended, outer)
		}
	}
	return extended, err
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
	s.efficiency.Background(closeTimeout, func(ctx context.Context) {
		_ = part.Close(ctx) // otherwise it ends with its TTL
	})
	return nil
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
