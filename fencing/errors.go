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
	// ErrInvalidKey means that a key for signed tokens cannot be used.
	ErrInvalidKey = errors.New("invalid key")
)

// The reasons why a Verifier refuses a signed token. Each matches ErrInvalidToken.
var (
	// ErrMalformedSigned means that a text is not a signed token, for example
	// because it is a token without a signature.
	ErrMalformedSigned error = invalidSigned("not a signed fencing token")
	// ErrNewerSigned means that a newer build has signed the token, in a format that
	// the gate does not read.
	ErrNewerSigned error = invalidSigned("signed fencing token of a newer format")
	// ErrUnknownKey means that the token is signed with a key that the gate does
	// not have.
	ErrUnknownKey error = invalidSigned("unknown signing key")
	// ErrBadSignature means that the token was changed, or was signed for another
	// resource.
	ErrBadSignature error = invalidSigned("bad signature of a fencing token")
	// ErrSignatureExpired means that the holder must get a new signature. The
	// lease may still be held.
	ErrSignatureExpired error = invalidSigned("signature of the fencing token has expired")
)

// invalidSigned is a reason to refuse a signed token.
type invalidSigned string

// Error returns the text.
func (e invalidSigned) Error() string { return string(e) }

// Is makes errors.Is match ErrInvalidToken.
func (e invalidSigned) Is(target error) bool { return target == ErrInvalidToken }

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
	return fmt.Sprintf("fencing token %d for %q is more than %d above the mark %d; if the lock service granted it, an operator must raise the bound",
		e.Token, string(e.Resource), e.MaxJump, e.Mark)
}

// Is makes errors.Is match ErrJump.
func (e *JumpError) Is(target error) bool { return target == ErrJump }
