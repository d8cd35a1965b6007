package redlockadapter

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/leased-project/leased/lease"
)

// renewal is one Renew of a session: every grant, to every node, in as few
// script calls as they fit into.
type renewal struct {
	session *session
	sent    lease.Instant
	lose    func(*attempt, error)
	all     chan struct{} // closed when every outcome is certain

	mu   sync.Mutex
	open int // grants whose outcome is not certain
	each []*renewing
}

// renewing is the renewal of one grant.
type renewing struct {
	attempt        *attempt
	yes, no, other int
	done           bool
}

// Renew prolongs every grant of the session on a majority of the nodes.
func (s *session) Renew(ctx context.Context) ([]lease.Nonce, error) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil, fmt.Errorf("%w: the session is closed", lease.ErrNotHeld)
	}
	var grants []*attempt
	var dropped []lease.Nonce
	for nonce, e := range s.known {
		if e.granted != nil {
			grants = append(grants, e.granted)
		} else if e.dropped {
			dropped = append(dropped, nonce)
		}
	}
	s.mu.Unlock()
	failed, err := s.prolong(ctx, grants, s.lose)
	if err != nil {
		return nil, err
	}
	return append(failed, dropped...), nil
}

// askedAgain prolongs a grant that is asked for again: who asks counts its time
// from this question. If it is lost, another process may have taken it over, and
// this one serves its session again: then it is taken back, under a new name, and
// the client is told of a loss only if that fails. The error matches ErrHeld if
// the grant is gone.
func (s *session) askedAgain(ctx context.Context, request *lease.Request, e *entry, a *attempt) (*attempt, error) {
	var lost error
	failed, err := s.prolong(ctx, []*attempt{a}, func(a *attempt, why error) {
		if s.drop(a) {
			lost = why
		}
	})
	if lost != nil {
		found, err := s.adopt(ctx, request, a.token, e)
		if err != nil && s.config.Lost != nil {
			s.config.Lost(a.nonce, lost)
		}
		if errors.Is(err, lease.ErrNotHeld) {
			err = attemptEnded(a.nonce)
		}
		return found, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case e.released || e.granted != a:
		return nil, attemptEnded(a.nonce)
	case err != nil:
		return nil, fmt.Errorf("%w: granted, but not prolonged: %w", lease.ErrUncertain, err)
	case len(failed) > 0:
		return nil, fmt.Errorf("%w: granted, but not prolonged", lease.ErrUncertain)
	}
	return a, nil
}

// prolong renews some grants, and calls lose for those that are ours no more. It
// returns what Renew does.
func (s *session) prolong(ctx context.Context, grants []*attempt, lose func(*attempt, error)) ([]lease.Nonce, error) {
	r := &renewal{session: s, sent: s.config.Clock.Now(), lose: lose, all: make(chan struct{})}
	var late []*attempt
	s.mu.Lock()
	for _, a := range grants {
		if r.sent.Since(a.sent) >= s.ttl { // others may hold it by now
			late = append(late, a)
		} else {
			r.each = append(r.each, &renewing{attempt: a})
		}
	}
	s.mu.Unlock()
	for _, a := range late {
		lose(a, fmt.Errorf("%w: it was not renewed in time", lease.ErrExpired))
	}
	if len(r.each) == 0 {
		return nil, nil
	}
	r.open = len(r.each)
	for _, one := range r.each {
		r.ask(one)
	}
	select {
	case <-r.all:
	case <-ctx.Done(): // what has not been answered counts as not renewed
	}
	return r.result(ctx)
}

// ask sends the renewal of one grant to all nodes.
func (r *renewal) ask(one *renewing) {
	a := one.attempt
	o := &op{script: renewScript, stop: &a.stop,
		args: a.long(a.claim.after(strconv.Itoa(len(a.locks)) + " " + r.session.ttlText + " " + a.token.String()))}
	o.answer = func(node int, got answer) {
		if got.sent {
			a.sentInVain(node)
		}
		r.answered(one, got)
	}
	for _, l := range r.session.backend.lanes {
		l.push(o)
	}
}

func (r *renewal) answered(one *renewing, got answer) {
	b := r.session.backend
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case got.err == nil && got.text == one.attempt.token.String():
		one.yes++
	case got.text == "taken" || got.text == "ended":
		one.no++
	default:
		one.other++
	}
	if one.done || one.yes < b.quorum && len(b.lanes)-one.no-one.other >= b.quorum {
		return
	}
	// With too many that refuse or fail the others cannot change the outcome, but
	// whether a majority says that the lock is not ours is still to be heard.
	if one.yes < b.quorum && one.no < b.quorum && one.yes+one.no+one.other < len(b.lanes) {
		return
	}
	one.done = true
	if r.open--; r.open == 0 {
		close(r.all)
	}
}

// result sorts the grants: prolonged, lost, or not known to be prolonged.
func (r *renewal) result(ctx context.Context) ([]lease.Nonce, error) {
	s, b := r.session, r.session.backend
	var failed []lease.Nonce
	var lost []*attempt
	r.mu.Lock()
	s.mu.Lock()
	for _, one := range r.each {
		switch {
		case one.yes >= b.quorum:
			one.attempt.sent = r.sent
		case one.no >= b.quorum:
			lost = append(lost, one.attempt)
		default:
			failed = append(failed, one.attempt.nonce)
		}
	}
	s.mu.Unlock()
	r.mu.Unlock()
	for _, a := range lost {
		r.lose(a, fmt.Errorf("%w: a majority of the Redis nodes says so", lease.ErrTaken))
	}
	if len(failed) == len(r.each) {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, fmt.Errorf("%w: no majority of the Redis nodes has renewed", lease.ErrUncertain)
	}
	return failed, nil
}

// lose ends a grant that is ours no more, and tells the client.
func (s *session) lose(a *attempt, err error) {
	if s.drop(a) && s.config.Lost != nil {
		s.config.Lost(a.nonce, err)
	}
}

// drop ends a grant that is ours no more. It reports whether it was till now.
func (s *session) drop(a *attempt) bool {
	s.mu.Lock()
	e := s.known[a.nonce]
	if e == nil || e.granted != a {
		s.mu.Unlock()
		return false
	}
	e.granted, e.dropped = nil, e.working
	if !e.working { // else finish does, if nothing comes of it
		delete(s.known, a.nonce)
	}
	s.mu.Unlock()
	s.backend.queues.release(a) // what some nodes still have of it
	return true
}

// holding finds the grant of this process with this name.
func (b *Backend) holding(name string) *attempt {
	b.mu.Lock()
	sessions := make([]*session, 0, len(b.sessions))
	for _, s := range b.sessions {
		sessions = append(sessions, s)
	}
	b.mu.Unlock()
	for _, s := range sessions {
		s.mu.Lock()
		for _, e := range s.known {
			if e.granted != nil && e.granted.name == name {
				s.mu.Unlock()
				return e.granted
			}
		}
		s.mu.Unlock()
	}
	return nil
}
