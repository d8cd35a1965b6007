// Package perlease has a session for engines that provide leases one by one and keep no
// sessions, such as the Redis nodes of efficiency mode. It keeps no leases either: the
// client passes each lease with the call that renews or releases it.
package perlease

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/leased-project/leased/lease/engine"
)

// Engine provides leases one by one. All methods may be called concurrently.
type Engine interface {
	// Acquire requests a lease of this TTL. The errors are those of
	// engine.Session, but none matches engine.ErrLost.
	Acquire(ctx context.Context, session engine.SessionID, ttl time.Duration, request engine.Request) (engine.Held, error)
	// Renew extends leases of one session, each by its TTL, and returns an error for
	// each: nil if the lease was extended, one that matches engine.ErrLost if it is lost,
	// another one if it may not have been extended.
	Renew(ctx context.Context, leases []engine.Held) []error
	// Release ends a lease. A lease without a name is one that an unanswered
	// acquire of its session and nonce may have left: the engine ends what it
	// finds of it. A second Release has no effect.
	Release(ctx context.Context, held engine.Held) error
}

// Session is an engine.Session whose leases are renewed one by one.
type Session struct {
	engine Engine
	config engine.SessionConfig

	mu     sync.Mutex
	closed map[engine.Nonce]bool // the leases that Close has released
}

var _ engine.Session = (*Session)(nil)

// NewSession returns a session on an engine. It does not call the engine.
func NewSession(calls Engine, config engine.SessionConfig) *Session {
	config.Clock = cmp.Or(config.Clock, engine.SystemClock())
	return &Session{engine: calls, config: config, closed: map[engine.Nonce]bool{}}
}

// Acquire requests a grant. What an earlier call of a repeated attempt may have acquired is
// released first: it would block this one for a TTL.
func (s *Session) Acquire(ctx context.Context, request engine.Request) (engine.Grant, error) {
	if request.Repeated {
		_ = s.engine.Release(ctx, engine.Held{Session: s.config.ID, Nonce: request.Nonce, Resources: request.Resources,
			TTL: s.config.TTL, Holder: request.Holder, Metadata: request.Metadata}) // otherwise it ends with its TTL
	}
	sent := s.config.Clock.Now()
	held, err := s.engine.Acquire(ctx, s.config.ID, s.config.TTL, request)
	if errors.Is(err, engine.ErrLost) { // there is no session to lose
		err = fmt.Errorf("%w: %s", engine.ErrUncertain, err.Error())
	}
	if err != nil {
		return engine.Grant{}, err
	}
	if s.config.Clock.Now().Since(sent) > s.config.TTL/3 { // the moment of the grant is unknown
		sent = s.config.Clock.Now()
		if err := s.engine.Renew(ctx, []engine.Held{held})[0]; err != nil {
			return engine.Grant{}, fmt.Errorf("%w: the lease was granted after a long wait, but could not be renewed: %s",
				s.giveUp(ctx, held), err.Error())
		}
	}
	return engine.Grant{Token: held.Token, Mode: engine.Efficiency, Sent: sent, Name: held.Name, User: held.User}, nil
}

// giveUp releases a lease of unknown age. It returns an error that says whether that is
// certain.
func (s *Session) giveUp(ctx context.Context, held engine.Held) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(maxRelease, held.TTL))
	defer cancel()
	if err := s.engine.Release(ctx, held); err != nil && !errors.Is(err, engine.ErrLost) {
		return engine.ErrUncertain
	}
	return engine.ErrUnavailable
}

// Renew extends leases. It returns those that were extended, and reports lost ones to Lost.
// If it extended none of them it returns an error.
func (s *Session) Renew(ctx context.Context, held ...engine.Held) (extended []engine.Nonce, err error) {
	if len(held) == 0 {
		return nil, nil
	}
	var failed error
	for i, err := range s.engine.Renew(ctx, held) {
		switch {
		case err == nil:
			extended = append(extended, held[i].Nonce)
		case errors.Is(err, engine.ErrLost):
			if s.config.Lost != nil {
				s.config.Lost(held[i].Nonce, err)
			}
		default:
			failed = err
		}
	}
	if failed != nil && len(extended) == 0 {
		return nil, fmt.Errorf("renew: %w", failed)
	}
	return extended, nil
}

// Update renews a lease for its TTL, with its metadata.
func (s *Session) Update(ctx context.Context, held engine.Held) error {
	if err := s.engine.Renew(ctx, []engine.Held{held})[0]; err != nil {
		return fmt.Errorf("renew: %w", err)
	}
	return nil
}

// Release ends a lease. A lost lease counts as released.
func (s *Session) Release(ctx context.Context, held engine.Held) error {
	if err := s.engine.Release(ctx, held); err != nil && !errors.Is(err, engine.ErrLost) {
		return fmt.Errorf("release: %w", err)
	}
	return nil
}

// maxRelease bounds one release.
const maxRelease = 5 * time.Second

// maxReleases bounds the concurrent releases of Close.
const maxReleases = 64

// Close releases leases. Another Close goes on with those that the last one did not release: a call for each of many
// would never get past the limit of the rate.
func (s *Session) Close(ctx context.Context, held ...engine.Held) error {
	s.mu.Lock()
	held = slices.DeleteFunc(slices.Clone(held), func(h engine.Held) bool { return s.closed[h.Nonce] })
	s.mu.Unlock()
	errs := engine.Each(len(held), maxReleases, func(i int) error { return s.Release(ctx, held[i]) })
	s.mu.Lock()
	for i, err := range errs {
		if err == nil {
			s.closed[held[i].Nonce] = true
		}
	}
	s.mu.Unlock()
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	if len(errs) > 0 {
		return fmt.Errorf("close session: %d leases were not released: %w", len(errs), errs[0])
	}
	return nil
}
