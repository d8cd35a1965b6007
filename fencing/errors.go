package fencing

import (
	"errors"
	"fmt"
)

var (
	// ErrInvalidResource means that a name violates a rule of Resource.
	ErrInvalidResource = errors.New("invalid resource")
	// ErrInvalidToken means that a value is not a Token.
	ErrInvalidToken = errors.New("invalid fencing token")
	// ErrStale means that a write was refused because a newer token has been
	// admitted. The holder has lost its lease and must stop, not retry.
	ErrStale = errors.New("stale fencing token")
	// ErrNoToken means that a required token is missing. The refusal of a write
	// without a token matches both ErrNoToken and ErrStale.
	ErrNoToken = errors.New("no fencing token")
	// ErrJump means that a token is further above the mark than the gate allows.
	ErrJump = errors.New("fencing token jumps too far")
	// ErrUnsigned means that a gate that verifies signatures has refused a token
	// without a valid one. It matches ErrInvalidToken. Package signature has the
	// reasons, which match both.
	ErrUnsigned = fmt.Errorf("%w: no valid signature", ErrInvalidToken)
)

// StaleError is returned for a write whose Token is below the Mark, the newest
// token admitted for the Resource. Nothing was written. It matches ErrStale,
// and also ErrNoToken if Token is None.
type StaleError struct {
	Resource Resource
	Token    Token
	Mark     Token
}

// Error says what was refused and what the holder should do.
func (e *StaleError) Error() string {
	if e.Token == None {
		return fmt.Sprintf("no fencing token: %q is fenced at %d; acquire its lease and send the token with the write",
			string(e.Resource), e.Mark)
	}
	return fmt.Sprintf("stale fencing token %d for %q: %d has been admitted; the lease is lost, stop writing",
		e.Token, string(e.Resource), e.Mark)
}

// Is makes errors.Is match ErrStale and, without a token, ErrNoToken.
func (e *StaleError) Is(target error) bool {
	return target == ErrStale || target == ErrNoToken && e.Token == None
}

// JumpError is returned for a token that is more than MaxJump above the Mark.
// Nothing was written, and the mark did not change. It matches ErrJump.
type JumpError struct {
	Resource Resource
	Token    Token
	Mark     Token
	MaxJump  Token
}

// Error says what was refused and what an operator can do.
func (e *JumpError) Error() string {
	return fmt.Sprintf("fencing token %d for %q is more than %d above the mark %d; "+
		"if the lock service granted it, raise the bound of the gate: MaxJump of its fencing.Rule, or 'leased gate ddl "+
		"--max-jump' for SQL",
		e.Token, string(e.Resource), e.MaxJump, e.Mark)
}

// Is makes errors.Is match ErrJump.
func (e *JumpError) Is(target error) bool { return target == ErrJump }
