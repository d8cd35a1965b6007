package clientcore

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

// ErrClosed reports that the client was closed.
var ErrClosed = errors.New("client is closed")

// ErrRerouted ends a wait in efficiency mode whose lock is served elsewhere from now on.
var ErrRerouted = fmt.Errorf("%w: the lock has changed its mode, or the Redis fleet has changed", engine.ErrUnavailable)

// Timing has the timings of a lease.
type Timing struct {
	TTL, Renew, Drift time.Duration
}

// Validity returns how long a lease lasts, counted from before the request was sent.
func (t Timing) Validity() time.Duration { return t.TTL - t.Drift }

// Key selects a session: leases in one mode with equal timings share one.
type Key struct {
	Timing
	Mode engine.Mode // AnyMode if the client has one engine
}

// Core has the state of a client.
type Core struct {
	random Random

	sessions []*Session       // in the order in which they began
	topology *engine.Topology // nil if the engine has none
	over     error            // why the client has ended, nil while it lives
}

// Random is the source of a client's random values.
type Random struct {
	// Jitter returns a random part of a pause: it keeps clients from all returning at once.
	Jitter func(time.Duration) time.Duration
	// NewID returns the id of a new session.
	NewID func() engine.SessionID
}

// New returns the core of a client without sessions.
func New(random Random) *Core { return &Core{random: random} }

// join returns the session of a key, with one more user. A lease without renewal has a
// session of its own.
func (c *Core) join(key Key, fixed bool) *Session {
	var s *Session
	if i := slices.IndexFunc(c.sessions, func(s *Session) bool { return s.key == key && !s.fixed }); i >= 0 && !fixed {
		s = c.sessions[i]
	} else {
		s = &Session{core: c, id: c.random.NewID(), key: key, fixed: fixed, attempts: map[engine.Nonce]*Call{},
			grants: map[engine.Nonce]*Grant{}, uncovered: map[engine.Nonce]*Grant{}, releases: map[engine.Nonce]*release{}}
		c.sessions = append(c.sessions, s)
	}
	s.users++
	return s
}

// remove removes a session, which no new call joins from now on.
func (c *Core) remove(s *Session) {
	c.sessions = slices.DeleteFunc(c.sessions, func(other *Session) bool { return other == s })
}

// Topology returns the newest topology, nil if none is known.
func (c *Core) Topology() *engine.Topology { return c.topology }

// SetTopology follows a new topology. It returns the calls to reroute, whose waits the
// driver ends with ErrRerouted, and the grants that are lost. A new fleet ends all leases
// in efficiency mode, because the locks of the new fleet are free. A lock that is leaving
// efficiency mode is held until its lease ends.
func (c *Core) SetTopology(topology engine.Topology) (reroute []*Call, lost []*Grant) {
	former := c.topology
	if former != nil && topology.Version < former.Version {
		return nil, nil
	}
	c.topology = &topology
	newFleet := former != nil && !former.Fleet.IsZero() && !former.Fleet.Equal(topology.Fleet)
	for _, s := range c.sessions {
		if s.key.Mode != engine.Efficiency {
			continue
		}
		loss := func(names []fencing.Resource) error {
			if newFleet {
				return fmt.Errorf("%w: the Redis fleet has changed", engine.ErrTaken)
			}
			if err := ModeError(&topology, names); errors.Is(err, engine.ErrLost) {
				return err
			}
			return nil
		}
		for _, nonce := range slices.Sorted(maps.Keys(s.attempts)) {
			call := s.attempts[nonce]
			mode, err := topology.Route(call.Request)
			if call.waits && (err != nil || mode != engine.Efficiency || newFleet) {
				reroute = append(reroute, call)
			}
			if err := loss(call.Request.Resources); err != nil {
				call.lost = err // a grant may be on its way
			}
		}
		for _, g := range s.inOrder() {
			if err := loss(g.Held.Resources); err != nil {
				s.end(g, err)
				s.releaseLater(g.Held)
				lost = append(lost, g)
			}
		}
	}
	return reroute, lost
}

// ModeError returns why a lease in efficiency mode cannot be renewed under a topology, nil
// if it can: an error that matches engine.ErrLost if its lock has left the mode, a
// MigratingError if it is leaving it.
func ModeError(topology *engine.Topology, names []fencing.Resource) error {
	for _, name := range names {
		mode, err := topology.ModeOf(name)
		if err != nil {
			return err
		}
		if mode != engine.Efficiency {
			return fmt.Errorf("%w: lock %q has migrated to %s mode", engine.ErrTaken, string(name), mode)
		}
	}
	return nil
}

// Close ends all sessions and returns them, and their grants. The driver steps each session.
func (c *Core) Close() (sessions []*Session, ended []*Grant) {
	c.over = ErrClosed
	sessions = slices.Clone(c.sessions)
	for _, s := range sessions {
		ended = append(ended, s.End(ErrClosed)...)
	}
	return sessions, ended
}
