package perlease

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/leased-project/leased/lease/engine"
)

// Renew extends every grant of the session. It returns the grants that were extended and
// reports lost ones to Lost. If no grant could be extended it returns an error.
func (s *Session) Renew(ctx context.Context) ([]engine.Nonce, error) {
	sent := s.config.Clock.Now()
	leases, expired, err := s.renewable(sent)
	if err != nil {
		return nil, err
	}
	s.lost(expired, fmt.Errorf("%w: the lease was not renewed in time", engine.ErrExpired))
	if len(leases) == 0 {
		return nil, nil
	}
	var extended []engine.Nonce
	var failed error
	errs := s.engine.Renew(ctx, leases)
	for i, held := range leases {
		switch err := errs[i]; {
		case err == nil:
			s.renewed(held, sent)
			extended = append(extended, held.Nonce)
		case errors.Is(err, engine.ErrLost):
			s.lost([]engine.Held{held}, err)
		case s.endsByMigration(held, sent, err):
			s.lost([]engine.Held{held}, fmt.Errorf("%w: %w", engine.ErrTaken, err))
		default:
			failed = err
		}
	}
	if failed != nil && len(extended) == 0 {
		return nil, fmt.Errorf("renew: %w", failed)
	}
	return extended, nil
}

// renewable returns the grants to renew, and those whose TTL has passed: others may
// hold their locks by now.
func (s *Session) renewable(now engine.Instant) (leases, expired []engine.Held, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, nil, fmt.Errorf("%w: the session is closed", engine.ErrNotHeld)
	}
	for _, a := range s.attempts {
		switch {
		case !a.granted || a.over:
		case now.Since(a.sent) >= s.config.TTL:
			expired = append(expired, a.held)
		default:
			leases = append(leases, a.held)
		}
	}
	return leases, expired, nil
}

// endsByMigration reports whether a lease ends because its lock is changing its mode:
// such a lease cannot be renewed. Its holder has three quarters of the TTL to finish.
// Then the lease ends with this reason instead of an expiry.
func (s *Session) endsByMigration(held engine.Held, now engine.Instant, err error) bool {
	var migrating *engine.MigratingError
	if !errors.As(err, &migrating) {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.attempts[held.Nonce]
	return a != nil && now.Since(a.sent) >= s.config.TTL*3/4
}

// renewed records that a grant was extended.
func (s *Session) renewed(held engine.Held, sent engine.Instant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a := s.attempts[held.Nonce]; a != nil && a.granted {
		a.sent = sent
	}
}

// lost ends grants that are lost, and reports them.
func (s *Session) lost(leases []engine.Held, err error) {
	for _, held := range leases {
		if s.remove(held) && s.config.Lost != nil {
			s.config.Lost(held.Nonce, err)
		}
	}
}

// remove ends a grant that is lost, and reports whether it was held until now.
func (s *Session) remove(held engine.Held) bool {
	s.mu.Lock()
	a := s.attempts[held.Nonce]
	known := a != nil && a.granted && !a.over
	if known {
		s.end(held.Nonce)
	}
	s.mu.Unlock()
	if known {
		s.releaseLater(held) // some Redis nodes may still have it
	}
	return known
}

// Lose ends every grant for which reason returns an error, which must match
// engine.ErrLost. The caller calls report, which reports the losses to the holders.
func (s *Session) Lose(reason func(engine.Held) error) (report func()) {
	s.mu.Lock()
	var leases []engine.Held
	for _, a := range s.attempts {
		if a.granted {
			leases = append(leases, a.held)
		}
	}
	s.mu.Unlock()
	causes := map[engine.Nonce]error{}
	for _, held := range leases {
		if err := reason(held); err != nil && s.remove(held) {
			causes[held.Nonce] = err
		}
	}
	return func() {
		for nonce, err := range causes {
			if s.config.Lost != nil {
				s.config.Lost(nonce, err)
			}
		}
	}
}

// Close ends the session and releases every grant in it. If it fails it can be called
// again, for the grants that were not released.
func (s *Session) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	all := s.attempts
	s.attempts = map[engine.Nonce]*attempt{}
	s.mu.Unlock()
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		errs []error
	)
	for _, a := range all {
		wg.Go(func() {
			if err := s.release(ctx, a); err != nil && !errors.Is(err, engine.ErrLost) {
				s.mu.Lock()
				s.attempts[a.held.Nonce] = a // so that a second Close finds it
				s.mu.Unlock()
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, err)
			}
		})
	}
	wg.Wait()
	s.work.Wait()
	if len(errs) > 0 {
		return fmt.Errorf("close session: %d leases were not released: %w", len(errs), errs[0])
	}
	return nil
}
