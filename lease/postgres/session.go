package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/leased-project/leased/lease/engine"
)

// session is an engine.Session. The database keeps leases, not sessions: the client passes
// each lease with the call that renews or releases it.
type session struct {
	backend *Backend
	config  engine.SessionConfig
	// unanswered has the attempts with a call that was not answered: a copy of the call may
	// arrive after the release.
	unanswered sync.Map
}

// askAgain is the longest time after which a waiter asks again.
const askAgain = 5 * time.Second

// pace returns the time after which a waiter asks again, and the time for which it keeps its place without asking. A
// waiter that disappears blocks those behind it for about as long as a holder would: for one TTL.
func (s *session) pace() (again, keep time.Duration) {
	again = min(askAgain, max(s.config.TTL/3, 2*time.Second))
	return again, 3 * again
}

// attempt returns the name of an attempt in the database.
func (s *session) attempt(nonce engine.Nonce) string {
	return s.config.ID.String() + "." + strconv.FormatUint(uint64(nonce), 10)
}

// parseAttempt returns the session and the nonce of an attempt, zero for one of another
// program.
func parseAttempt(name string) (engine.SessionID, engine.Nonce) {
	id, number, _ := strings.Cut(name, ".")
	session, err := engine.ParseSessionID(id)
	nonce, numberErr := strconv.ParseUint(number, 10, 64)
	if err != nil || numberErr != nil {
		return engine.SessionID{}, 0
	}
	return session, engine.Nonce(nonce)
}

// Acquire requests a grant, and waits for it if the request says so.
func (s *session) Acquire(ctx context.Context, request engine.Request) (engine.Grant, error) {
	if err := request.Validate(); err != nil {
		return engine.Grant{}, err
	}
	switch {
	case request.Kind != engine.Exclusive:
		return engine.Grant{}, fmt.Errorf("%w: PostgreSQL has no %s leases; use a lock service in correctness mode",
			engine.ErrUnsupported, request.Kind)
	case request.Mode == engine.Efficiency:
		return engine.Grant{}, &engine.ModeError{Resource: request.Resources[0], Want: request.Mode, Have: engine.Correctness}
	}
	if !request.Wait {
		grant, _, err := s.ask(ctx, request, nil)
		return grant, err
	}
	attempt := s.attempt(request.Nonce)
	again, keep := s.pace()
	woken, done := s.backend.listener.add(attempt)
	defer done()
	for look := 0; ; look++ {
		_, listening := s.backend.listener.channel()
		grant, remaining, err := s.ask(ctx, request, &keep)
		if look > 0 && errors.Is(err, engine.ErrUnavailable) { // an earlier call has queued the attempt
			err = fmt.Errorf("%w: %s", engine.ErrUncertain, err.Error())
		}
		if !errors.Is(err, engine.ErrHeld) || remaining < 0 {
			return grant, err
		}
		if request.Queued != nil {
			request.Queued()
			request.Queued = nil
		}
		limit := again
		if !listening {
			limit = min(limit, pollPause(look))
		}
		select {
		case h := <-woken:
			// The lease began after the release was sent. If that was long ago, ask how much remains: even if this
			// attempt has asked since then, that lease may have expired before, and another one may hold the lock.
			now := s.config.Clock.Now()
			if age := releaseClock.Now().Since(h.sent); h.token.Valid() && age < s.config.TTL/4 {
				return engine.Grant{Token: h.token, Mode: engine.Correctness, Sent: now.Add(-age), Name: attempt}, nil
			}
		case <-time.After(min(limit, max(remaining, time.Millisecond))):
		case <-ctx.Done():
			return engine.Grant{}, engine.Cause(ctx)
		}
	}
}

// pollPause returns the pause before a waiter without notifications asks again: 10 ms at first,
// at most a second.
func pollPause(look int) time.Duration {
	return min(10*time.Millisecond<<min(look, 7), time.Second)
}

// ask calls the database once. With a time to wait, an attempt that is not granted is queued.
// remaining is the time until the present lease ends, negative if the attempt cannot be
// granted any more.
func (s *session) ask(ctx context.Context, request engine.Request, wait *time.Duration) (grant engine.Grant,
	remaining time.Duration, err error) {
	sent := s.config.Clock.Now()
	attempt := s.attempt(request.Nonce)
	arguments := acquisition{holder: request.Holder, ttl: s.config.TTL, metadata: object(request.Metadata), wait: wait}
	a := s.backend.acquires.submit(&call{ctx: ctx, attempt: attempt, acquire: arguments, try: wait == nil},
		request.Resources)
	// It may have an effect. The error of a context that has ended may look like a refusal.
	if a.err != nil && (ctx.Err() != nil || !errors.Is(a.err, engine.ErrUnavailable) && !engine.Refused(a.err)) {
		s.unanswered.Store(request.Nonce, true)
	}
	return a.grant(request.Resources[0], sent, s.config.TTL)
}

// Renew extends leases, and calls Lost for each lease that the database no longer has.
func (s *session) Renew(ctx context.Context, held ...engine.Held) (extended []engine.Nonce, err error) {
	return s.renew(ctx, lockWait, s.config.TTL, nil, held...)
}

// Update renews a lease for its TTL, and sets its metadata.
func (s *session) Update(ctx context.Context, held engine.Held) error {
	if err := errors.Join(engine.ValidateTTL(held.TTL), engine.ValidateMetadata(held.Metadata)); err != nil {
		return err
	}
	extended, err := s.renew(ctx, lockWait, held.TTL, held.Metadata, held)
	if err == nil && len(extended) == 0 {
		err = fmt.Errorf("renew %q: %w", string(held.Resources[0]), engine.ErrNotHeld)
	}
	return err
}

// lockWait is how long a renewal waits for a lock that another transaction keeps.
const lockWait = 500 * time.Millisecond

// renew extends leases by ttl, and replaces their metadata unless it is empty.
func (s *session) renew(ctx context.Context, wait, ttl time.Duration, metadata map[string]string,
	held ...engine.Held) (extended []engine.Nonce, err error) {
	if len(held) == 0 {
		return nil, nil
	}
	locks, err := s.extend(ctx, wait, ttl, metadata, held...)
	unanswered := errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil
	if len(held) > 1 && (refused(err) || unanswered) { // busy locks do not keep the other leases from their renewal
		return s.renewEach(ctx, ttl, metadata, held)
	}
	if err != nil {
		return nil, failure(ctx, "renew", held[0].Resources[0], err)
	}
	for _, h := range held {
		switch {
		case locks[h.Name] == len(h.Resources):
			extended = append(extended, h.Nonce)
		case s.config.Lost != nil:
			s.config.Lost(h.Nonce, engine.ErrNotHeld)
		}
	}
	return extended, nil
}

// renewEach renews leases one by one, several at a time. It fails if none could be renewed. Many busy locks together
// delay the other leases hardly longer than one.
func (s *session) renewEach(ctx context.Context, ttl time.Duration, metadata map[string]string,
	held []engine.Held) (extended []engine.Nonce, err error) {
	var mu sync.Mutex
	wait := max(20*time.Millisecond, min(lockWait, batchesAtOnce*lockWait/time.Duration(len(held))))
	errs := engine.Each(len(held), batchesAtOnce, func(i int) error {
		nonces, err := s.renew(ctx, wait, ttl, metadata, held[i])
		mu.Lock()
		defer mu.Unlock()
		extended = append(extended, nonces...)
		return err
	})
	if len(extended) > 0 {
		return extended, nil
	}
	return nil, cmp.Or(errs...)
}

// extend calls the database, and returns the number of locks that were extended for each attempt.
func (s *session) extend(ctx context.Context, wait, ttl time.Duration, metadata map[string]string,
	held ...engine.Held) (locks map[string]int, err error) {
	var resources, attempts []string
	for _, h := range held {
		for _, name := range h.Resources {
			resources = append(resources, string(name))
			attempts = append(attempts, h.Name)
		}
	}
	ctx, cancel := s.backend.pool.limit(ctx)
	defer cancel()
	rows, _ := s.backend.pool.Query(ctx, renewLocks, resources, attempts, ttl, object(metadata), wait.Milliseconds())
	locks = map[string]int{}
	var (
		attempt string
		count   int
	)
	_, err = pgx.ForEachRow(rows, []any{&attempt, &count}, func() error { locks[attempt] = count; return nil })
	return locks, err
}

// Release ends an attempt, also one that is queued, or whose acquire has not arrived yet.
func (s *session) Release(ctx context.Context, held engine.Held) (err error) {
	_, unanswered := s.unanswered.Load(held.Nonce)
	remember := unanswered || held.Name == "" // an earlier session may have called, too
	release := &call{ctx: ctx, attempt: s.attempt(held.Nonce), remember: remember}
	err = s.backend.releases.submit(release, held.Resources).err
	if err == nil {
		s.unanswered.Delete(held.Nonce)
	}
	return err
}

// Close releases leases.
func (s *session) Close(ctx context.Context, held ...engine.Held) error {
	errs := engine.Each(len(held), batchesAtOnce*batchLimit, func(i int) error { return s.Release(ctx, held[i]) })
	return cmp.Or(errs...)
}
