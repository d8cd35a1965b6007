package fencing

import (
	"fmt"
	"strconv"
	"unicode"
	"unicode/utf8"
)

// MaxResourceLen is the longest name of a Resource, in bytes.
const MaxResourceLen = 512

// Resource is the name of what is protected. A Token means nothing without it.
//
// Invariants, checked by Validate:
//  1. it has 1 to MaxResourceLen bytes;
//  2. it is UTF-8 of printable characters; the only white space is U+0020.
//
// Names are compared byte by byte. Nothing is folded or normalised.
type Resource string

// ParseResource returns s as a Resource, or an error matching
// ErrInvalidResource that says which rule s breaks.
func ParseResource(s string) (Resource, error) {
	r := Resource(s)
	if err := r.Validate(); err != nil {
		return "", err
	}
	return r, nil
}

// Validate reports whether r is a usable name.
func (r Resource) Validate() error {
	if r == "" {
		return fmt.Errorf("%w: the name is empty", ErrInvalidResource)
	}
	if len(r) > MaxResourceLen {
		return fmt.Errorf("%w: the name has %d bytes, at most %d are allowed",
			ErrInvalidResource, len(r), MaxResourceLen)
	}
	for i, c := range string(r) {
		if ' ' <= c && c <= '~' {
			continue // as most are
		}
		if c == utf8.RuneError {
			if _, size := utf8.DecodeRuneInString(string(r[i:])); size <= 1 {
				return fmt.Errorf("%w: %q is not UTF-8 at byte %d", ErrInvalidResource, string(r), i)
			}
		}
		if unicode.Is(unprintable, c) {
			return fmt.Errorf("%w: %q has the unprintable character %U at byte %d",
				ErrInvalidResource, string(r), c, i)
		}
	}
	return nil
}

// Slot is the name under which the holder of slot n of a semaphore on r fences
// its writes. Permits are held side by side, so under one name the newer
// holders would fence the older ones out; within one slot tokens grow from
// holder to holder. Do not use a name that ends like this for a lock of its own.
func (r Resource) Slot(n int) Resource {
	return r + "#" + Resource(strconv.Itoa(n))
}
