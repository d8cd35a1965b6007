package redlock

import "github.com/leased-project/leased/redlockadapter/quorum"

// The most that a World has room for.
const (
	maxNodes    = 5
	maxAttempts = 3
	maxJoins    = 3
)

// slack is how much more than needed a node raises max by. In production it is
// larger.
const slack = 1

// Message is where a question is: it can be late, its answer can be late, and
// both can stay on their way for ever.
type Message uint8

// The way of a message.
const (
	Unsent Message = iota
	Asked
	Answered
	Received
)

// Reply is what a node answers: a token, or no.
type Reply struct {
	Kind  quorum.State // Accepted, Held or Refused
	Token uint8
}

// Talk is what one attempt and one node have said to each other, and what the
// attempt has made of it.
type Talk struct {
	Acquire     Message
	AcquireSays Reply
	Raise       Message
	RaiseTo     uint8
	RaiseSays   Reply
	Vote        Reply
	Raising     bool
}

// Prepare is what one join and one node have said to each other.
type Prepare struct {
	Target bool // this is the node that is to come back
	Way    Message
	OK     bool
	Max    uint8
}

// Column is one node and all that is on its way to and from it. Nodes have no
// names: a World is the same when its columns change places.
type Column struct {
	Data  bool
	Doubt bool  // restarted, and says that it has lost nothing
	Word  bool  // it has its vote by the word of nodes that were restarted
	Lock  uint8 // attempt + 1, 0 if free
	Ctr   uint8 // 0 if missing
	Max   uint8
	Floor uint8
	Epoch uint8
	Join  uint8 // join + 1, 0 if none

	Talks    [maxAttempts]Talk
	Prepares [maxJoins]Prepare
}

// adopt is what every vote begins with: an older epoch is refused, a newer one
// is taken over.
func (c *Column) adopt(epoch uint8) bool {
	if !c.Data || c.Epoch > epoch {
		return false
	}
	c.Epoch = epoch
	return true
}

// base is the last accepted token, as far as the node knows.
func (c *Column) base() uint8 {
	base := c.Ctr
	if base == 0 {
		base = c.Max
	}
	return max(base, c.Floor)
}

// acquire is scripts/acquire.lua for one lock.
func (c *Column) acquire(attempt int, epoch uint8) Reply {
	me := uint8(attempt) + 1
	switch {
	case !c.adopt(epoch):
		return Reply{Kind: quorum.Refused}
	case c.Lock == me:
		return Reply{Kind: quorum.Accepted, Token: c.Ctr}
	case c.Lock != 0:
		return Reply{Kind: quorum.Held}
	}
	c.Lock = me
	c.Ctr = c.base() + 1
	if c.Ctr > c.Max {
		c.Max = c.Ctr + slack
	}
	return Reply{Kind: quorum.Accepted, Token: c.Ctr}
}

// raise is scripts/raise.lua for one lock.
func (c *Column) raise(attempt int, token, epoch uint8) Reply {
	ctr := c.Ctr
	if ctr == 0 {
		ctr = c.Max
	}
	if !c.adopt(epoch) || c.Lock != uint8(attempt)+1 || ctr > token || token <= c.Floor {
		return Reply{Kind: quorum.Refused}
	}
	c.Ctr = token
	c.Max = max(c.Max, token)
	return Reply{Kind: quorum.Accepted, Token: token}
}

// release is scripts/release.lua for one lock. The search has locks end at any
// moment, so it needs none.
func (c *Column) release(attempt int) {
	if c.Lock == uint8(attempt)+1 {
		c.Lock = 0
	}
}

// renew is scripts/renew.lua for one lock.
func (c *Column) renew(attempt int, token uint8) bool {
	me := uint8(attempt) + 1
	if !c.Data || c.Lock != me && (c.Lock != 0 || c.base() > token) {
		return false
	}
	c.Lock = me
	c.Ctr = max(c.Ctr, token)
	c.Max = max(c.Max, token)
	return true
}

// prepare is scripts/prepare.lua.
func (c *Column) prepare(epoch uint8, believe bool) (top uint8, ok bool) {
	if !c.Data && !(c.Doubt && believe) || c.Epoch > epoch {
		return 0, false
	}
	c.Epoch = epoch
	return c.Max, true
}

// join is scripts/join.lua.
func (c *Column) join(join int) bool {
	if c.Data {
		return false
	}
	c.Join = uint8(join) + 1
	return true
}

// init is scripts/init.lua, less the quarantine: no time passes here.
func (c *Column) init(join int, epoch, floor uint8, believed bool) bool {
	if c.Data || c.Join != uint8(join)+1 || c.Epoch > epoch {
		return false
	}
	c.Floor = max(floor, c.Max) // a node that was only restarted may know more
	c.Data, c.Doubt, c.Word, c.Epoch, c.Max, c.Join = true, false, believed, epoch, c.Floor, 0
	return true
}

// raiseFloor is scripts/floor.lua.
func (c *Column) raiseFloor(token uint8) bool {
	if !c.Data {
		return false
	}
	c.Floor, c.Max = max(c.Floor, token), max(c.Max, token)
	return true
}

// distrust is scripts/admit.lua after a restart that may have lost something.
func (c *Column) distrust() {
	c.Data, c.Doubt, c.Max, c.Join = false, false, 0, 0
}

// doubt is scripts/admit.lua after a restart that is said to have lost nothing.
func (c *Column) doubt() {
	c.Doubt = c.Doubt || c.Data
	c.Data, c.Join = false, 0
}

// goBack is a restart with old data that is said to be all: anything that the
// node may have had before, and, since more of it is the worse, also what it never had.
func (c *Column) goBack(lock, ctr, epoch uint8) {
	c.Lock, c.Ctr, c.Max, c.Floor, c.Epoch = lock, ctr, ctr, 0, epoch
	c.doubt()
}

// lose is a restart without data.
func (c *Column) lose() {
	c.Data, c.Doubt, c.Word, c.Lock, c.Ctr, c.Max, c.Floor, c.Epoch, c.Join = false, false, false, 0, 0, 0, 0, 0, 0
}
