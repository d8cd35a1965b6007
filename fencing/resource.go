package fencing

import (
	"fmt"
	"strconv"
	"unicode"
	"unicode/utf8"
)

// MaxResourceLen is the maximum length of a Resource in bytes.
const MaxResourceLen = 512

// Resource is the name of what is protected. A Token is meaningful only
// together with its Resource.
//
// Invariants, checked by Validate:
//  1. it has 1 to MaxResourceLen bytes;
//  2. it is valid UTF-8 and printable; the only white space is U+0020.
//
// Names are compared byte by byte, without case folding or normalization.
type Resource string

// ParseResource returns s as a Resource, or an error that matches
// ErrInvalidResource and says which rule s violates.
func ParseResource(s string) (Resource, error) {
	r := Resource(s)
	if err := r.Validate(); err != nil {
		return "", err
	}
	return r, nil
}

// Validate returns nil if r is a valid name, else an error matching
// ErrInvalidResource.
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
			continue // the common case
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

// Slot returns the name under which the holder of slot n of a semaphore on r
// fences its writes. Several permits are held at once, so under one name newer
// holders would fence out older ones. Within one slot tokens increase from
// holder to holder. Do not give a lock a name with this suffix.
func (r Resource) Slot(n int) Resource {
	return r + "#" + Resource(strconv.Itoa(n))
}
