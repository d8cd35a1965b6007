package fencing

import "fmt"

// FloorStep is how far the lock service raises its tokens after anything that
// may have rolled its memory back, such as a restore from a backup. A bound on
// the jump must leave room for it.
const FloorStep Token = 1 << 32

// DefaultMaxJump is a bound for gates that want one: it leaves room for 255
// floor steps, and stops a time in milliseconds that was sent as a token.
const DefaultMaxJump Token = 1 << 40

// Rule decides whether a write passes. It is a pure function of the mark (the
// newest token admitted for the resource) and the token of the write: no clock,
// no I/O. A gate reads the mark, asks the rule, stores the raised mark and
// writes, all in one atomic step.
type Rule struct {
	// MaxJump, if not 0, is the largest allowed distance of a token above the
	// mark, counted from 0 on first use. Without a bound one absurd token locks
	// everyone out for ever, since a mark is never lowered. A bound below
	// FloorStep refuses every token after a restore of the lock service.
	MaxJump Token
}

// Admit returns nil if a write with this token may pass; the mark then becomes
// the larger of mark and token. An equal token passes: it is the holder's
// second write. A write without a token passes only while the resource has
// never been fenced.
func (r Rule) Admit(resource Resource, mark, token Token) error {
	switch {
	case token > MaxToken:
		return outOfRange(token)
	case token < mark:
		return &StaleError{Resource: resource, Token: token, Mark: mark}
	case r.MaxJump != 0 && token-mark > r.MaxJump:
		return &JumpError{Resource: resource, Token: token, Mark: mark, MaxJump: r.MaxJump}
	}
	return nil
}

// Enter is Admit for a holder that is about to read what it will write: the
// mark must be raised before the first read, else a stale write can land
// between that read and the first write. It always needs a token.
func (r Rule) Enter(resource Resource, mark, token Token) error {
	if token == None && mark == None {
		return fmt.Errorf("enter %q: %w; acquire its lease first", string(resource), ErrNoToken)
	}
	return r.Admit(resource, mark, token)
}
