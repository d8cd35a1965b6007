package machine

import (
	"cmp"
	"fmt"
	"math"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

// Limits bounds what one user may use of a machine. A command carries the limits of the
// leader that proposed it, so that replicas agree whatever their own settings are. A zero
// field means no limit.
type Limits struct {
	SessionsPerUser int // open sessions
	LeasesPerUser   int // held leases, with those that waiting requests may become
	WaitersPerUser  int // waiting requests
	WaitersPerLock  int // waiting requests for one lock, of all users
}

// The names of the Limits, as settings of the service.
const (
	SessionsPerUserName = "limit-sessions-per-user"
	LeasesPerUserName   = "limit-leases-per-user"
	WaitersPerUserName  = "limit-waiters-per-user"
	WaitersPerLockName  = "limit-waiters-per-lock"
)

// validate checks that the limits can be encoded.
func (l *Limits) validate() error {
	for _, n := range []int{l.SessionsPerUser, l.LeasesPerUser, l.WaitersPerUser, l.WaitersPerLock} {
		if n < 0 || n > math.MaxInt32 {
			return fmt.Errorf("%w: a limit of %d must be from 0 to %d", engine.ErrInvalid, n, math.MaxInt32)
		}
	}
	return nil
}

// LimitError reports that a command would exceed one of the Limits. It matches
// engine.ErrLimit.
type LimitError struct {
	Limit    string           // its name
	Max      int              // its value
	User     string           // whose limit it is
	Resource fencing.Resource // whose limit WaitersPerLockName is
}

// Error names the limit and its value.
func (e *LimitError) Error() string {
	whose := "user " + e.User
	switch {
	case e.Limit == WaitersPerLockName:
		whose = fmt.Sprintf("lock %q", string(e.Resource))
	case e.User == "":
		whose = "all callers together"
	}
	what := map[string]string{SessionsPerUserName: "sessions",
		LeasesPerUserName: "leases and waiting requests in correctness mode"}
	return fmt.Sprintf("%v: %s: %d %s, as many as %s allows", engine.ErrLimit, whose, e.Max,
		cmp.Or(what[e.Limit], "waiting requests"), e.Limit)
}

// Is makes errors.Is match engine.ErrLimit.
func (e *LimitError) Is(target error) bool { return target == engine.ErrLimit }

// usage is what one user uses. The sessions of the user share it. A session that has ended
// does not count, but its requests do until they end.
type usage struct {
	sessions, holders, waiters int
}

// usageOf returns the usage of a user.
func (m *Machine) usageOf(user string) *usage {
	u := m.usage[user]
	if u == nil {
		u = &usage{}
		m.usage[user] = u
	}
	return u
}

// addSession adds a session to the machine.
func (m *Machine) addSession(s *session) {
	m.sessions[s.id] = s
	s.usage = m.usageOf(s.user)
	s.usage.sessions++
	m.everySession.add(s, m.images)
}

// countWaiter and countHolder count the requests of the machine and of the session's user.
func (m *Machine) countWaiter(s *session, by int) { m.waiters += by; s.usage.waiters += by }
func (m *Machine) countHolder(s *session, by int) { m.holders += by; s.usage.holders += by }

// exceeded reports whether a count has reached a limit.
func exceeded(count, limit int) bool { return limit != 0 && count >= limit }

// checkLimits returns the limit that a request would exceed as a holder or as a waiter, or
// nil.
func (m *Machine) checkLimits(r *request, granted bool, l *Limits) *LimitError {
	u := r.session.usage
	switch {
	case !granted && exceeded(u.waiters, l.WaitersPerUser):
		return &LimitError{Limit: WaitersPerUserName, Max: l.WaitersPerUser, User: r.session.user}
	case exceeded(u.holders+u.waiters, l.LeasesPerUser): // no waiter is refused when it is granted
		return &LimitError{Limit: LeasesPerUserName, Max: l.LeasesPerUser, User: r.session.user}
	case granted:
		return nil
	}
	for _, name := range r.resources {
		if lock := m.locks[name]; lock != nil && exceeded(len(lock.queue), l.WaitersPerLock) {
			return &LimitError{Limit: WaitersPerLockName, Max: l.WaitersPerLock, Resource: name}
		}
	}
	return nil
}
