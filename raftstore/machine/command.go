package machine

import (
	"fmt"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

// Command is a change of the machine's state. Commands come from Decode or have passed
// Validate; the machine does not validate them again.
type Command interface {
	apply(m *Machine) Result
	code(data *codec) // writes the command, or reads it
	validate() error
}

// Lead is the first command of a new leader. It raises the generation, so that expiries
// proposed by earlier leaders have no effect.
type Lead struct{}

// OpenSession opens a session. Opening an open session has no effect. A session belongs
// to the user that opened it: for another user the Result is OtherUser.
//
// The Result has the incarnation of the session. A late copy of this command, applied
// after the session has ended, opens another incarnation. Commands that name the first
// incarnation have no effect on it.
type OpenSession struct {
	Session engine.SessionID
	TTL     time.Duration
	User    string // the owner of the session, empty without users
	Limits  Limits // SessionsPerUser counts
}

// CloseSession ends a session on behalf of its client: from here on it can do nothing, and
// none of its requests is granted. EndRequests then releases its leases and cancels its
// waiting requests.
type CloseSession struct {
	Session     engine.SessionID
	Incarnation uint64
}

// Acquire requests a grant. Session and Request.Nonce identify the attempt: applied
// twice, it has one outcome. A copy without Wait ends an attempt that waits, and never a
// grant. Request.Mode, if set, must be the lock's mode.
type Acquire struct {
	Session     engine.SessionID
	Incarnation uint64
	Request     engine.Request
	Limits      Limits // those of leases and waiters count
}

// Release ends an attempt: it leaves the queue, or its grant is released. Applied twice,
// it is a no-op. It also ends an unknown attempt, whose Acquire may arrive later.
type Release struct {
	Session     engine.SessionID
	Incarnation uint64
	Nonce       engine.Nonce
}

// Update changes a session and a lease of it that is held. It raises the TTL of the session to
// TTL, and never lowers it: the client may rely on the longer one, whatever command is applied
// late. If Metadata is not empty, it replaces that of the lease. Nonce 0 names no lease, TTL 0
// leaves the TTL as it is.
type Update struct {
	Session     engine.SessionID
	Incarnation uint64
	TTL         time.Duration
	Nonce       engine.Nonce
	Metadata    map[string]string
}

// Expire ends a session whose TTL has passed on the leader's clock, like CloseSession. It
// has an effect only in the generation of the leader that proposed it.
type Expire struct {
	Session     engine.SessionID
	Incarnation uint64
	Generation  uint64
}

// MaxEndRequests is the maximum of EndRequests.Max: some milliseconds of work.
const MaxEndRequests = 500

// EndRequests ends requests of sessions that have ended, the session that ended first comes first,
// and then waiting requests for locks that migrate to efficiency mode, and leases and delays of
// those that migrate now. It ends at most Max of them, and a request for several locks counts as
// several, so the end of a large session, or the migration of many locks, does not delay the
// commands of others. The Result is Ending if any are left. Each entry in which sessions end or a
// migration begins has one, and the leader proposes further ones.
type EndRequests struct {
	Max int
}

// Break ends one grant on behalf of an operator.
type Break struct {
	Resource fencing.Resource
	Token    fencing.Token
}

// EndDelay ends a lock delay that has passed on the leader's clock. Like Expire, it has
// an effect only in its generation, and only on the delay that it names.
type EndDelay struct {
	Resource   fencing.Resource
	Delay      uint64
	Generation uint64
}

// RaiseFloor makes all later tokens of this machine larger than By plus the largest
// token that either mode can have granted, as far as the log knows. It is applied after
// every operation that may have rolled the log back.
type RaiseFloor struct {
	By fencing.Token
}

// EndSessions ends every session, and with it every lease: a lease may have been released
// since, and a released lock may be held by others. Like RaiseFloor, it is applied after
// every operation that may have rolled the log back. No later incarnation was used
// before, neither by this machine nor by one whose order had reached Above.
//
// Its work is not bounded: it is never applied while a node serves.
type EndSessions struct {
	Above uint64
}

// Validate returns the first rule that a command breaks.
func Validate(c Command) error { return c.validate() }

func (c *Lead) validate() error { return nil }

func (c *OpenSession) validate() error {
	if err := engine.ValidateTTL(c.TTL); err != nil {
		return err
	}
	if err := engine.ValidateHolder(c.User); err != nil {
		return err
	}
	return c.Limits.validate()
}

func (c *CloseSession) validate() error { return nil }

func (c *Acquire) validate() error {
	if err := c.Limits.validate(); err != nil {
		return err
	}
	return c.Request.Validate()
}

func (c *Release) validate() error {
	if c.Nonce == 0 {
		return fmt.Errorf("%w: nonce 0", engine.ErrInvalid)
	}
	return nil
}

func (c *Update) validate() error {
	if c.TTL != 0 {
		if err := engine.ValidateTTL(c.TTL); err != nil {
			return err
		}
	}
	if c.Nonce == 0 && len(c.Metadata) > 0 {
		return fmt.Errorf("%w: metadata belongs to a lease, and none is named", engine.ErrInvalid)
	}
	return engine.ValidateMetadata(c.Metadata)
}

func (c *Expire) validate() error { return nil }

func (c *EndRequests) validate() error {
	if c.Max < 1 || c.Max > MaxEndRequests {
		return fmt.Errorf("%w: end %d requests, not 1 to %d", engine.ErrInvalid, c.Max, MaxEndRequests)
	}
	return nil
}

func (c *Break) validate() error {
	if !c.Token.Valid() {
		return fmt.Errorf("%w: break needs the token of the holder", fencing.ErrInvalidToken)
	}
	return c.Resource.Validate()
}

func (c *EndDelay) validate() error { return c.Resource.Validate() }

func (c *EndSessions) validate() error {
	if c.Above > maxCount/2 {
		return fmt.Errorf("%w: incarnations above %d", engine.ErrInvalid, c.Above)
	}
	return nil
}

func (c *RaiseFloor) validate() error {
	if c.By > fencing.MaxToken {
		return fmt.Errorf("%w: raise by %d", fencing.ErrInvalidToken, c.By)
	}
	return nil
}
