package clientcore

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/leased-project/leased/lease/engine"
)

// Session is a session of a client with every attempt and every grant in it.
//
// A grant ends at its deadline. Until a renewal covers it, the deadline counts from its
// own request; after that, from the last answered renewal. An attempt that ended here but
// perhaps not at the service is released in the background until the service confirms it.
type Session struct {
	// Owner is the driver's record of the session.
	Owner any

	core  *Core
	id    engine.SessionID
	key   Key
	fixed bool // serves one lease, and does not renew it once it is granted

	open             bool
	over             error // why the session ended, nil while it lives
	lastNonce        engine.Nonce
	users            int // calls that use the session
	releasing        int // releases that a caller waits for
	releasesUnderWay int // in the background
	attempts         map[engine.Nonce]*Call
	grants           map[engine.Nonce]*Grant
	uncovered        map[engine.Nonce]*Grant   // the grants that no renewal covers yet
	releases         map[engine.Nonce]*release // to be confirmed by the service
	closing          []engine.Held             // what a closed session may still hold

	lastRenewed engine.Instant // before the last answered renewal was sent
	lastSent    engine.Instant // before the last renewal was sent
	lastUsed    engine.Instant // when there was last a grant or a user
	keptUntil   engine.Instant // the service may keep leases until then without renewals; zero without an extension
	renewing    bool           // a renewal is under way
	failing     bool           // the last renewal failed
	cutOff      bool           // the next Step renews: the engine cannot hear of losses
	unreached   bool           // no renewal was answered since the connection dropped
	round       uint64         // number of renewals sent
}

// Grant is a grant of the service.
type Grant struct {
	// Held is the lease.
	Held engine.Held
	// Since is when the grant arrived.
	Since engine.Instant
	// Owner is the driver's record of the grant.
	Owner any

	session  *Session
	sent     engine.Instant // the deadline counts from here, unless covered
	round    uint64         // the last renewal that was sent before it was granted
	extended uint64         // the last renewal that extended it
	covered  bool           // the deadline counts from the last answered renewal
	until    engine.Instant // the service keeps it until then, whatever its session does; zero without an Extended
	ended    error          // why it ended, nil while it is held
}

// release is a release in the background.
type release struct {
	held     engine.Held
	underWay bool
	tries    int
	next     engine.Instant // when to try again; zero for at once
}

// ID returns the id of the session.
func (s *Session) ID() engine.SessionID { return s.id }

// Key returns the timings and the mode.
func (s *Session) Key() Key { return s.key }

// Fixed reports whether the session serves one lease and does not renew it.
func (s *Session) Fixed() bool { return s.fixed }

// IsOpen reports whether the service has the session.
func (s *Session) IsOpen() bool { return s.open }

// Over returns why the session has ended, nil if it has not.
func (s *Session) Over() error { return s.over }

// Opened records that the service has the session. sent is from before it was asked.
func (s *Session) Opened(sent engine.Instant) {
	s.open = true
	s.lastRenewed, s.lastSent, s.lastUsed = sent, sent, sent
}

// Err returns why the grant has ended, nil if it has not.
func (g *Grant) Err() error { return g.ended }

// Session returns the session of the grant.
func (g *Grant) Session() *Session { return g.session }

// Deadline returns when the grant ends if it is not renewed.
func (g *Grant) Deadline() engine.Instant {
	from := g.sent
	if g.covered {
		from = g.session.lastRenewed
	}
	if at := from.Add(g.session.key.Validity()); at.Since(g.until) > 0 || g.until.IsZero() {
		return at
	}
	return g.until
}

// Extended records that the engine keeps the grant for ttl, counted from sent, which is from
// before the request was sent. From then on the grant has a deadline of its own.
func (g *Grant) Extended(sent engine.Instant, ttl time.Duration) {
	s := g.session
	drift := max(s.key.Drift, time.Duration(float64(s.key.Drift)/float64(s.key.TTL)*float64(ttl)))
	if until := sent.Add(ttl - drift); g.ended == nil && (g.until.IsZero() || until.Since(g.until) > 0) {
		if g.covered {
			g.covered, g.sent = false, s.lastRenewed
			s.uncovered[g.Held.Nonce] = g
		}
		g.until = until
	}
}

// MayBeKept records that the service may keep the session or its leases until then without
// renewals: a longer time was asked for, whatever the answer was.
func (s *Session) MayBeKept(until engine.Instant) {
	if s.keptUntil.IsZero() || until.Since(s.keptUntil) > 0 {
		s.keptUntil = until
	}
}

// accept turns the answer to an attempt into a grant, unless it has ended by now.
func (s *Session) accept(now engine.Instant, c *Call, g *Grant, answer engine.Grant) error {
	g.session, g.round, g.Since, g.sent = s, s.round, now, answer.Sent
	if g.sent.IsZero() && answer.Name == "" {
		g.sent = s.lastRenewed // it lasts as long as its session
	} else if g.sent.IsZero() {
		g.sent = c.asked
	}
	g.Held = engine.Held{Name: answer.Name, Session: s.id, Nonce: c.nonce, Resources: c.Request.Resources,
		Token: answer.Token, TTL: s.key.TTL, Holder: c.Request.Holder, User: answer.User, Metadata: c.Request.Metadata}
	var err error
	switch {
	case s.over != nil:
		err = s.over
	case c.lost != nil: // the loss arrived before the grant
		err = c.lost
	case !answer.Token.Valid():
		err = fmt.Errorf("%w: the service granted the invalid token %d", engine.ErrUncertain, answer.Token)
	case c.Request.Mode != engine.AnyMode && answer.Mode != c.Request.Mode:
		err = &engine.ModeError{Resource: c.Request.Resources[0], Want: c.Request.Mode, Have: answer.Mode}
	case now.Until(g.Deadline()) <= 0:
		err = fmt.Errorf("%w before the grant arrived", engine.ErrExpired)
	}
	delete(s.attempts, c.nonce)
	if err != nil {
		s.releaseLater(g.Held)
		return err
	}
	s.grants[c.nonce] = g
	s.uncovered[c.nonce] = g
	return nil
}

// inOrder returns the grants by their nonces.
func (s *Session) inOrder() []*Grant { return sorted(slices.Collect(maps.Values(s.grants))) }

// sorted sorts grants by their nonces, which makes simulations repeatable.
func sorted(grants []*Grant) []*Grant {
	slices.SortFunc(grants, func(a, b *Grant) int { return cmp.Compare(a.Held.Nonce, b.Held.Nonce) })
	return grants
}

// Check ends a grant whose deadline has passed, and reports whether it did.
func (g *Grant) Check(now engine.Instant) (expired bool) {
	return len(g.session.expire(now, g)) > 0
}

// expire ends those of the grants whose deadline has passed, and returns them.
func (s *Session) expire(now engine.Instant, grants ...*Grant) (ended []*Grant) {
	for _, g := range grants {
		if g.ended == nil && now.Until(g.Deadline()) <= 0 {
			s.end(g, s.expiry(g))
			s.releaseLater(g.Held)
			ended = append(ended, g)
		}
	}
	return sorted(ended)
}

// expiry returns why a grant was not renewed until its deadline.
func (s *Session) expiry(g *Grant) error {
	var migrating *engine.MigratingError
	t := s.core.topology
	if s.key.Mode == engine.Efficiency && t != nil && errors.As(ModeError(t, g.Held.Resources), &migrating) {
		return fmt.Errorf("%w: %w", engine.ErrTaken, migrating)
	}
	return engine.ErrExpired
}

// end marks a grant as ended.
func (s *Session) end(g *Grant, err error) {
	g.ended = err
	delete(s.grants, g.Held.Nonce)
	delete(s.uncovered, g.Held.Nonce)
}

// Lost records a loss that the engine reports. It returns the grant, nil if it was not
// held.
func (s *Session) Lost(nonce engine.Nonce, err error) *Grant {
	if !errors.Is(err, engine.ErrLost) {
		err = fmt.Errorf("%w: %w", engine.ErrNotHeld, err)
	}
	if g := s.grants[nonce]; g != nil {
		s.end(g, err)
		if g.Held.Name != "" {
			s.releaseLater(g.Held) // some Redis nodes may still have it
		}
		return g
	}
	if c := s.attempts[nonce]; c != nil {
		c.lost = err
	}
	return nil
}

// End ends the session and every grant in it, and returns the grants.
func (s *Session) End(err error) []*Grant {
	s.core.remove(s)
	if s.over == nil {
		s.over = err
	}
	ended := s.inOrder()
	for _, g := range ended {
		s.end(g, err)
		s.addClosing(g.Held)
	}
	for _, nonce := range slices.Sorted(maps.Keys(s.releases)) {
		s.addClosing(s.releases[nonce].held)
	}
	clear(s.releases)
	return ended
}

// addClosing records an attempt that closing the session must release: one of an engine
// without sessions.
func (s *Session) addClosing(held engine.Held) {
	if s.key.Mode != engine.Correctness {
		s.closing = append(s.closing, held)
	}
}

// Closing returns whether the session has to be closed at the service, and what it may
// still hold there. A session that the service ended is not closed.
func (s *Session) Closing() (held []engine.Held, needed bool) {
	return s.closing, s.open && !errors.Is(s.over, engine.ErrLost)
}

// Release ends a grant that its holder releases. The driver then releases it at the
// service and calls Released.
func (g *Grant) Release() {
	g.session.end(g, engine.ErrReleased)
	g.session.releasing++
}

// Released records the outcome of a release that Grant.Release began. After an error the
// attempt is released in the background.
func (s *Session) Released(held engine.Held, err error) {
	s.releasing--
	if err != nil {
		s.releaseLater(held)
	}
}

// releaseLater schedules the release of an attempt in the background.
func (s *Session) releaseLater(held engine.Held) {
	if s.over == nil && s.open {
		s.releases[held.Nonce] = &release{held: held}
		return
	}
	if s.over != nil {
		s.addClosing(held)
	}
}

// ReleasedLater records the outcome of a release in the background.
func (s *Session) ReleasedLater(now engine.Instant, nonce engine.Nonce, err error) {
	s.releasesUnderWay--
	r := s.releases[nonce]
	if r == nil {
		return // the session has ended
	}
	if err == nil || errors.Is(err, engine.ErrLost) {
		delete(s.releases, nonce)
		return
	}
	r.underWay, r.next = false, now.Add(s.core.Pause(r.tries))
	r.tries++
}
