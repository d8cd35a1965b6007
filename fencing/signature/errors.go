package signature

import (
	"errors"

	"github.com/leased-project/leased/fencing"
)

// ErrInvalidKey means that a key for signed tokens cannot be used.
var ErrInvalidKey = errors.New("invalid key")

// The reasons why a Verifier refuses a signed token. Each matches
// fencing.ErrUnsigned and fencing.ErrInvalidToken.
var (
	// ErrMalformed means that a text is not a signed token, for example because it
	// is a token without a signature.
	ErrMalformed error = refusal("not a signed fencing token")
	// ErrNewer means that a newer build has signed the token, in a format that the
	// gate does not read.
	ErrNewer error = refusal("signed fencing token of a newer format")
	// ErrUnknownKey means that the token is signed with a key that the gate does
	// not have.
	ErrUnknownKey error = refusal("unknown signing key")
	// ErrBadSignature means that the token was changed, or was signed for another
	// resource.
	ErrBadSignature error = refusal("bad signature of a fencing token")
	// ErrExpired means that the holder must get a new signature. The lease may
	// still be held.
	ErrExpired error = refusal("signature of the fencing token has expired")
)

// refusal is a reason to refuse a signed token.
type refusal string

// Error returns the text.
func (r refusal) Error() string { return string(r) }

// Is makes errors.Is match the classes of package fencing.
func (r refusal) Is(target error) bool {
	return target == fencing.ErrUnsigned || target == fencing.ErrInvalidToken
}
