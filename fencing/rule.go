package fencing

import "fmt"

// FloorStep is the amount by which the lock service raises its tokens after an
// event that may have rolled back its state, such as a restore from a backup. A
// bound on the jump must allow for it.
const FloorStep Token = 1 << 32

// DefaultMaxJump is the bound of a Rule without MaxJump: it allows 255 floor steps
// and refuses a Unix time in milliseconds that was sent as a token. The SQL and Lua
// of the gates have the same default.
const DefaultMaxJump Token = 1 << 40

// Unbounded is a Rule.MaxJump that refuses no token: no jump is larger.
const Unbounded = MaxToken

// Rule decides whether a write is admitted. It is a pure function of the mark
// (the newest token admitted for the resource) and the token of the write. In
// one atomic step, a gate reads the mark, applies the rule, stores the raised
// mark and writes.
type Rule struct {
	// MaxJump is the largest allowed distance of a token above the mark; a
	// resource without a mark counts from 0. 0 means DefaultMaxJump. With
	// Unbounded, one absurd token locks everyone out until an operator resets the
	// mark. A bound below FloorStep refuses every token after a restore of the lock
	// service.
	MaxJump Token
}

// Bound returns MaxJump, or DefaultMaxJump if it is 0.
func (r Rule) Bound() Token {
	if r.MaxJump == 0 {
		return DefaultMaxJump
	}
	return r.MaxJump
}

// Admit returns nil if a write with this token is admitted; the mark then
// becomes the larger of mark and token. An equal token is admitted: it is
// another write of the same holder. A write without a token is admitted only if
// the resource was never fenced.
func (r Rule) Admit(resource Resource, mark, token Token) error {
	switch {
	case token > MaxToken:
		return outOfRange(token)
	case token < mark:
		return &StaleError{Resource: resource, Token: token, Mark: mark}
	case token-mark > r.Bound():
		return &JumpError{Resource: resource, Token: token, Mark: mark, MaxJump: r.Bound()}
	}
	return nil
}

// Enter is Admit for a holder that is about to read the data it will change.
// The mark must be raised before the first read; otherwise a stale write can
// land between that read and the holder's first write. Enter requires a token.
func (r Rule) Enter(resource Resource, mark, token Token) error {
	if token == None && mark == None {
		return fmt.Errorf("enter %q: %w; acquire its lease first", string(resource), ErrNoToken)
	}
	return r.Admit(resource, mark, token)
}
