package redisnode

import "github.com/leased-project/leased/fencing"

// State is the state of a node in one life. Without Voter the node is empty, and all
// fields but the join nonce are zero.
type State struct {
	Voter               bool
	Version             uint64
	Fleet, Member       string
	Max, Floor, Ceiling fencing.Token
	Initialised         string // the join nonce that made the node a voter
	Successor           string // the fleet that replaces the node's fleet, if any
	Join                string
	Joined, Since       int64 // when the last join was, and when the quarantine began
}

// Reason is why a node refused a call; Accepted is the zero Reason.
type Reason string

// The reasons, as in the scripts.
const (
	Accepted    Reason = ""
	Empty       Reason = "empty"
	OtherFleet  Reason = "fleet"
	OldVersion  Reason = "version"
	Ended       Reason = "ended"
	Held        Reason = "held"
	AtCeiling   Reason = "ceiling"
	Lost        Reason = "lost"
	Taken       Reason = "taken"
	HasState    Reason = "state"
	Joining     Reason = "joining"
	OtherJoin   Reason = "join"
	Quarantined Reason = "wait"
)

// Reply is a node's answer. Which fields are set depends on Reason.
type Reply struct {
	Reason  Reason
	Token   fencing.Token // Accepted
	Version uint64        // OldVersion: the node's
	Fleet   string        // OtherFleet: the node's
	Left    int64         // Held, Quarantined: milliseconds
	Nonce   string        // Held: the holder's
}

// Call has the arguments of acquire, raise and renew.
type Call struct {
	Version      uint64
	Fleet, Nonce string
	TTL          int64         // acquire, renew
	Token        fencing.Token // raise, renew; acquire: the granted one, or None
	Details      string        // acquire, renew
	Waiter       Waiter        // acquire; without a name the caller does not wait
}

// admit makes the checks that acquire, raise, renew and break have in common.
func (s *State) admit(c *Call) (Reply, bool) {
	switch {
	case !s.Voter:
		return Reply{Reason: Empty}, false
	case s.Fleet != c.Fleet:
		return Reply{Reason: OtherFleet, Fleet: s.Fleet}, false
	case s.Version > c.Version:
		return Reply{Reason: OldVersion, Version: s.Version}, false
	}
	return Reply{}, true
}

// accept stores a token and the caller's version.
func (s *State) accept(c *Call, token fencing.Token) Reply {
	s.Max, s.Version = max(s.Max, token), c.Version
	return Reply{Token: token}
}

// until returns when the lease of a call ends on the node: never earlier than it would without the call.
func (r *Record) until(now int64, c *Call) int64 {
	if r.Nonce == c.Nonce {
		return max(r.Until, now+c.TTL)
	}
	return now + c.TTL
}

// Acquire is acquire.lua.
func (s *State) Acquire(now int64, locks []*Record, c *Call) Reply {
	if reply, ok := s.admit(c); !ok {
		return reply
	}
	mine, token, granted, held := true, fencing.None, c.Token, Reply{}
	for _, r := range locks {
		if r.Nonce == c.Nonce && r.Renewed == r.Token {
			granted = r.Token
		}
		if r.Released == c.Nonce || granted != fencing.None && granted <= r.Ended {
			return Reply{Reason: Ended}
		}
		switch {
		case !r.held(now):
			mine = false
		case r.Nonce != c.Nonce:
			mine = false
			if left := r.Until - now; left > held.Left {
				held = Reply{Reason: Held, Left: left, Nonce: r.Nonce}
			}
			if c.Waiter.Name != "" {
				r.wait(now, c.Waiter)
			}
		}
		token = max(token, r.last(s))
	}
	if held.Reason == Held {
		return held
	}
	switch {
	case granted != fencing.None:
		token = max(token, granted)
	case !mine:
		token = max(token, s.Floor) + 1
	}
	if token > s.Ceiling {
		return Reply{Reason: AtCeiling}
	}
	for _, r := range locks {
		if r.Nonce != c.Nonce {
			r.Details = c.Details
		}
		if granted == fencing.None {
			r.take(c, r.until(now, c), token)
		} else {
			r.take(c, r.until(now, c), granted)
			r.Counter = token
		}
		if c.Waiter.Name != "" {
			r.leave(now, c.Waiter.Name)
		}
	}
	reply := s.accept(c, token)
	if granted != fencing.None {
		reply.Token = granted
	}
	return reply
}

// Raise is raise.lua.
func (s *State) Raise(now int64, locks []*Record, c *Call) Reply {
	if reply, ok := s.admit(c); !ok {
		return reply
	}
	if c.Token > s.Ceiling {
		return Reply{Reason: AtCeiling}
	}
	for _, r := range locks {
		if r.Nonce != c.Nonce || r.Until <= now || r.last(s) > c.Token || r.Renewed == r.Token && r.Token < c.Token {
			return Reply{Reason: Lost}
		}
	}
	for _, r := range locks {
		r.Token = c.Token
	}
	return s.accept(c, c.Token)
}

// Renew is renew.lua.
func (s *State) Renew(now int64, locks []*Record, c *Call) Reply {
	if reply, ok := s.admit(c); !ok {
		return reply
	}
	for _, r := range locks {
		other := r.Nonce != "" && r.Nonce != c.Nonce
		switch {
		case r.Released == c.Nonce || c.Token <= r.Ended:
			return Reply{Reason: Ended}
		case other && (r.held(now) || r.Token > c.Token):
			return Reply{Reason: Taken}
		case r.Nonce == c.Nonce && r.Until > now:
		case c.Token > s.Ceiling || r.Token != fencing.None && r.last(s) < s.Floor:
			return Reply{Reason: Taken}
		}
	}
	for _, r := range locks {
		if last := r.last(s); last > c.Token {
			r.Counter = last
		}
		r.Details, r.Renewed = c.Details, c.Token
		r.take(c, r.until(now, c), c.Token)
	}
	return s.accept(c, c.Token)
}

// Advance is advance.lua.
func (s *State) Advance(version uint64, fleet string, floor, ceiling fencing.Token, successor string) Reason {
	switch {
	case !s.Voter:
		return Empty
	case s.Fleet != fleet:
		return OtherFleet
	}
	if version >= s.Version {
		s.Version, s.Successor = version, successor
	}
	s.Floor, s.Ceiling = max(s.Floor, floor), max(s.Ceiling, ceiling)
	s.Max = max(s.Max, floor)
	return Accepted
}

// Join has the arguments of join.
type Join struct {
	Nonce   string
	Version uint64
	Fleet   string
	Keep    int64 // another join nonce stays if its last join was less than this time ago
	Again   bool  // a voter of the fleet gets one too
	Gap     int64 // the time without a join after which the quarantine starts again
}

// PutJoin is join.lua. waited is the time since the quarantine began.
func (s *State) PutJoin(now int64, j Join) (reason Reason, waited int64) {
	idle := now - s.Joined
	switch {
	case s.Voter && s.Fleet == j.Fleet && !j.Again:
		return HasState, 0
	case s.Voter && s.Version > j.Version:
		return OldVersion, 0
	case s.Join != "" && s.Join != j.Nonce && idle >= 0 && idle < j.Keep:
		return Joining, 0
	}
	if s.Join == "" || idle < 0 || idle >= j.Gap {
		s.Since = now
	}
	s.Join, s.Joined = j.Nonce, now
	return Accepted, now - s.Since
}

// Range has the arguments of init.
type Range struct {
	Join           string
	Version        uint64
	Fleet, Member  string
	Floor, Ceiling fencing.Token
	Quarantine     int64
	Successor      string
	// Reserved is the floor of the latest initialised life; Node sets it.
	Reserved fencing.Token
}

// Reserve is reserve.lua on the state that stores the floor.
func (s *State) Reserve(fleet string, floor fencing.Token) Reason {
	switch {
	case !s.Voter:
		return Empty
	case s.Fleet != fleet:
		return OtherFleet
	}
	s.Floor, s.Max = max(s.Floor, floor), max(s.Max, floor)
	return Accepted
}

// Init is init.lua, except for the name of the latest life. A voter keeps a larger version.
func (s *State) Init(now int64, r *Range) Reply {
	if s.Join == "" || s.Join != r.Join {
		return Reply{Reason: OtherJoin}
	}
	s.Since = min(s.Since, now) // the clock was set back: the quarantine starts again
	if left := r.Quarantine - (now - s.Since); left > 0 {
		return Reply{Reason: Quarantined, Left: left}
	}
	floor := max(r.Floor, r.Reserved)
	*s = State{Voter: true, Version: max(r.Version, s.Version), Fleet: r.Fleet, Member: r.Member, Max: floor, Floor: floor,
		Ceiling: r.Ceiling, Initialised: r.Join, Successor: r.Successor}
	return Reply{}
}
