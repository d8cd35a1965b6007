package fencing

import (
	"fmt"
	"strconv"
)

// Token is the fencing token of a grant.
//
// Invariants:
//  1. it is at least 1 and at most MaxToken, or it is None;
//  2. no two grants of one Resource have the same Token;
//  3. a grant that starts after another grant of the same Resource ended has
//     the larger Token.
//
// Tokens of different resources are not comparable.
type Token uint64

const (
	// None means "no token".
	None Token = 0
	// MaxToken is the largest Token, 2^53-1. It is exact in an int64 column, in
	// the doubles of Lua and JavaScript, and in JSON.
	MaxToken Token = 1<<53 - 1
)

// ParseToken parses a decimal token. "0" is None. A sign, a leading zero, white
// space, a fraction and an exponent are errors: several languages compare
// tokens, so each token has exactly one text form.
func ParseToken(s string) (Token, error) {
	if s == "" {
		return None, fmt.Errorf("%w: the text is empty", ErrInvalidToken)
	}
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return None, fmt.Errorf("%w: %.40q is not a decimal number", ErrInvalidToken, s)
		}
	}
	if len(s) > 1 && s[0] == '0' {
		return None, fmt.Errorf("%w: %.40q has a leading zero", ErrInvalidToken, s)
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil || Token(n) > MaxToken {
		return None, fmt.Errorf("%w: %.40s is above the largest token %d", ErrInvalidToken, s, MaxToken)
	}
	return Token(n), nil
}

// Valid reports whether a grant can carry t. None is not valid.
func (t Token) Valid() bool { return t != None && t <= MaxToken }

// Newer reports whether t was granted later than u, for tokens of one Resource.
// Every token is newer than None.
func (t Token) Newer(u Token) bool { return t > u }

// String returns the decimal form that ParseToken parses.
func (t Token) String() string { return strconv.FormatUint(uint64(t), 10) }
