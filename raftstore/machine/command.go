package machine

import (
	"fmt"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

// Command is one change that is asked of the machine. Commands come from
// Decode, or have passed Validate: the machine does not check them again.
type Command interface {
	apply(m *Machine) Result
	encode(w *writer)
	validate() error
}

// Lead is the first command of a new leader. It raises the generation, after
// which no expiry that an earlier leader decided on has any effect.
type Lead struct{}

// OpenSession makes a session known. Opened twice it is the same session.
//
// A new session has an incarnation, which the Result names. A late copy of this
// command, applied after the session has ended, opens another incarnation, and
// commands that name the first have no effect on it.
type OpenSession struct {
	Session engine.SessionID
	TTL     time.Duration
}

// CloseSession ends a session at its client's wish: what it holds is released,
// and what it waits for is cancelled.
type CloseSession struct {
	Session     engine.SessionID
	Incarnation uint64
}

// Acquire asks for a grant. It is known by Session and Request.Nonce: applied
// twice it has one outcome. Request.Mode, if set, must be the lock's.
type Acquire struct {
	Session     engine.SessionID
	Incarnation uint64
	Request     engine.Request
}

// Release ends an attempt whatever its state: it leaves the queue, or frees
// what it was granted. Applied twice it is a no-op. An attempt that is not
// known yet is ended too: its Acquire may still be on the way.
type Release struct {
	Session     engine.SessionID
	Incarnation uint64
	Nonce       engine.Nonce
}

// Expire ends a session whose time has passed on the leader's clock. It counts
// only in the generation in which it was decided.
type Expire struct {
	Session     engine.SessionID
	Incarnation uint64
	Generation  uint64
}

// Break takes one grant away from its holder, by order of an operator.
type Break struct {
	Resource fencing.Resource
	Token    fencing.Token
}

// EndDelay opens a lock whose lock-delay has passed on the leader's clock. Like
// Expire it counts only in its generation, and only for the delay it names.
type EndDelay struct {
	Resource   fencing.Resource
	Delay      uint64
	Generation uint64
}

// RaiseFloor makes all later tokens of this machine larger than By plus the
// largest one that either mode can have granted, as far as the log knows. It is
// applied after anything that may have rolled the log back.
type RaiseFloor struct {
	By fencing.Token
}

// EndSessions ends every session, and with it every lease: what they hold may
// have been released since, and what they have released may be held by others.
// Like RaiseFloor it follows whatever may have rolled the log back. No later
// incarnation is one that was given before, neither by this machine nor by one
// that has come as far as Above.
type EndSessions struct {
	Above uint64
}

// Validate reports the first rule that a command breaks.
func Validate(c Command) error { return c.validate() }

func (c *Lead) validate() error { return nil }

func (c *OpenSession) validate() error {
	if c.TTL < engine.MinTTL || c.TTL > engine.MaxTTL {
		return fmt.Errorf("%w: session ttl (%v) must be from %v to %v", engine.ErrInvalid, c.TTL, engine.MinTTL, engine.MaxTTL)
	}
	return nil
}

func (c *CloseSession) validate() error { return nil }

func (c *Acquire) validate() error { return c.Request.Validate() }

func (c *Release) validate() error {
	if c.Nonce == 0 {
		return fmt.Errorf("%w: nonce 0", engine.ErrInvalid)
	}
	return nil
}

func (c *Expire) validate() error { return nil }

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
