package clientcore

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/leased-project/leased/lease/engine"
)

// maxTimer bounds how late a driver notices that the machine was suspended, because timers
// do not run then.
const maxTimer = time.Second

// maxReleases bounds the releases of a session in the background that are under way: in an outage each of them waits
// for its time limit.
const maxReleases = 100

// Actions are due in a session.
type Actions struct {
	// Ended are the grants whose deadline has passed.
	Ended []*Grant
	// Renewal is to be sent, unless nil. The driver calls Renewed with the outcome.
	Renewal *Renewal
	// Release are attempts to release once. The driver calls ReleasedLater.
	Release []engine.Held
	// Close says that nobody needs the session: the driver closes it at the service.
	Close bool
	// Next is the time until the next Step.
	Next time.Duration
}

// Renewal is a renewal under way.
type Renewal struct {
	// Sent is from before it is sent.
	Sent engine.Instant
	// Held are the leases of an engine without sessions.
	Held []engine.Held
	// Leases is the number of leases.
	Leases int

	round uint64
}

// Step returns the actions that are due.
func (s *Session) Step(now engine.Instant) Actions {
	a := Actions{Ended: s.expire(now, s.mayBeDue(now)...)}
	a.Next = min(maxTimer, s.untilDeadline(now))
	busy := len(s.grants) > 0 || s.users > 0
	if busy {
		s.lastUsed = now
	}
	if s.wantsRenewal() {
		every := s.key.Renew
		if s.failing {
			every /= 4 // the lease may end before the next regular renewal
			if s.unreached {
				every = min(every, maxPause) // it may have ended already
			}
		}
		if left := now.Until(s.lastSent.Add(every)); left > 0 && !s.cutOff {
			a.Next = min(a.Next, left)
		} else if !s.renewing {
			a.Renewal = s.startRenewal(now)
		}
	}
	a.Release = s.dueReleases(now, &a.Next)
	if s.over == nil && !busy && now.Since(s.lastUsed) >= s.idleTime() {
		s.End(engine.ErrReleased)
	}
	a.Close = s.over != nil && s.users == 0 && s.releasing == 0 // until then it may get more to release
	a.Next = max(a.Next, time.Millisecond)
	return a
}

// mayBeDue returns the grants that can have reached their deadline.
func (s *Session) mayBeDue(now engine.Instant) []*Grant {
	sessionDue := now.Until(s.lastRenewed.Add(s.key.Validity())) <= 0
	grants := slices.Collect(maps.Values(s.uncovered))
	if sessionDue && len(s.grants) > len(s.uncovered) {
		for _, g := range s.grants {
			if g.covered {
				grants = append(grants, g)
			}
		}
	}
	return grants
}

// untilDeadline returns the time to the next deadline.
func (s *Session) untilDeadline(now engine.Instant) time.Duration {
	next := maxTimer
	if len(s.grants) > len(s.uncovered) {
		next = min(next, now.Until(s.lastRenewed.Add(s.key.Validity())))
	}
	for _, g := range s.uncovered {
		next = min(next, now.Until(g.Deadline()))
	}
	return next
}

// dueReleases returns the attempts to release now, and lowers next to the time of the
// others. The rest waits until ReleasedLater is called for one of them.
func (s *Session) dueReleases(now engine.Instant, next *time.Duration) (due []engine.Held) {
	for _, nonce := range slices.Sorted(maps.Keys(s.releases)) {
		switch r := s.releases[nonce]; {
		case r.underWay:
		case r.next.IsZero() || now.Until(r.next) <= 0:
			if s.releasesUnderWay < maxReleases {
				s.releasesUnderWay++
				r.underWay = true
				due = append(due, r.held)
			}
		default:
			*next = min(*next, now.Until(r.next))
		}
	}
	return due
}

// wantsRenewal reports whether the session needs renewals. A lease without renewal needs
// them only while it waits for its grant. Attempts that are only to be released need
// none: they may expire.
func (s *Session) wantsRenewal() bool {
	switch {
	case s.over != nil:
		return false
	case s.fixed:
		return s.users > 0 && len(s.grants) == 0
	case len(s.grants) > 0 || s.users > 0:
		return true
	}
	return len(s.releases) == 0 && s.releasing == 0
}

// idleTime returns how long an unused session is kept, for the next call and for releases that the
// service has not confirmed. Those are repeated until the service would end the leases itself: after
// one TTL without a renewal, or when an extension is over.
func (s *Session) idleTime() time.Duration {
	switch {
	case len(s.releases) > 0 || s.releasing > 0:
		return max(s.key.TTL, s.keptUntil.Since(s.lastUsed))
	case s.fixed:
		return 0
	}
	return s.key.TTL
}

// Disconnected records that the engine's connection has dropped: it cannot hear of losses until
// the next renewal reconnects it. The next Step renews. Steps are at most a second apart, and not
// the same second in every client, so the clients of a dead member do not reconnect all at once.
func (s *Session) Disconnected() { s.cutOff, s.unreached = true, true }

// StartRenewal starts a renewal for a caller that wants one now. It returns nil while
// another one is under way.
func (s *Session) StartRenewal(now engine.Instant) (*Renewal, error) {
	switch {
	case s.over != nil:
		return nil, s.over
	case s.renewing:
		return nil, nil
	}
	return s.startRenewal(now), nil
}

func (s *Session) startRenewal(now engine.Instant) *Renewal {
	s.renewing, s.lastSent, s.cutOff = true, now, false
	s.round++
	r := &Renewal{Sent: now, Leases: len(s.grants), round: s.round}
	if s.key.Mode == engine.Correctness {
		return r
	}
	for _, g := range s.grants {
		// It is held until its deadline.
		leaving := s.core.topology != nil && ModeError(s.core.topology, g.Held.Resources) != nil
		if g.Held.Name != "" && now.Until(g.Deadline()) > 0 && !leaving {
			r.Held = append(r.Held, g.Held)
		}
	}
	slices.SortFunc(r.Held, func(a, b engine.Held) int { return cmp.Compare(a.Nonce, b.Nonce) })
	return r
}

// Renewed records the outcome of a renewal: the deadline of every grant that it extended,
// and that was held when it was sent, counts from then. The others keep their deadline,
// and the error says how many they are. If the engine says that the session is lost, the
// driver calls End.
func (s *Session) Renewed(r *Renewal, extended []engine.Nonce, err error) error {
	s.renewing = false
	if err == nil {
		s.unreached = s.cutOff // it may have dropped again
	}
	if err == nil && s.over == nil {
		if missed := s.extend(r, extended); missed > 0 {
			err = fmt.Errorf("%w: %d of %d leases were not renewed", engine.ErrUnavailable, missed, r.Leases)
		}
	}
	s.failing = err != nil
	return err
}

func (s *Session) extend(r *Renewal, extended []engine.Nonce) (missed int) {
	for _, nonce := range extended {
		if g := s.grants[nonce]; g != nil && g.round < r.round {
			g.extended = r.round
		}
	}
	for nonce, g := range s.grants {
		switch {
		case g.extended == r.round && !g.until.IsZero():
			g.sent = r.Sent
			continue
		case g.extended == r.round:
			g.covered = true
			delete(s.uncovered, nonce)
			continue
		case g.covered:
			g.covered, g.sent = false, s.lastRenewed
			s.uncovered[nonce] = g
		}
		if g.round < r.round {
			missed++
		}
	}
	s.lastRenewed = r.Sent
	return missed
}

// CoveredBy reports whether a renewal has extended the grant.
func (g *Grant) CoveredBy(r *Renewal) bool { return g.extended == r.round && g.ended == nil }
