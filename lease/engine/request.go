package engine

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/leased-project/leased/fencing"
)

// Limits of a Request.
const (
	MaxResources      = 64
	MaxPermits        = 10_000
	MaxHolderLen      = 256
	MaxMetadata       = 32
	MaxMetadataKeyLen = 128
	MaxMetadataLen    = 4096 // keys and values together
)

// SessionID is the random identity of a session.
type SessionID [16]byte

// NewSessionID returns a fresh SessionID.
func NewSessionID() SessionID {
	var id SessionID
	rand.Read(id[:]) // never fails, see its documentation
	return id
}

// ParseSessionID parses the text of String.
func ParseSessionID(s string) (SessionID, error) {
	raw, err := hex.DecodeString(s)
	if err != nil || len(raw) != len(SessionID{}) {
		return SessionID{}, fmt.Errorf("%w: session id %.40q, use 32 hexadecimal digits", ErrInvalid, s)
	}
	return SessionID(raw), nil
}

// String returns 32 hexadecimal digits.
func (id SessionID) String() string { return hex.EncodeToString(id[:]) }

// MarshalText returns the text of String.
func (id SessionID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText parses the text of String.
func (id *SessionID) UnmarshalText(text []byte) error {
	parsed, err := ParseSessionID(string(text))
	if err != nil {
		return err
	}
	*id = parsed
	return nil
}

// Nonce identifies an acquisition attempt within its session. A client counts from 1
// and never uses a nonce twice. Together with the random SessionID it is globally
// unique. It is not a fencing token.
type Nonce uint64

// Request is a request for a lease.
//
// Invariants, checked by Validate:
//  1. Resources are 1 to MaxResources valid names, in ascending order, without
//     duplicates;
//  2. Permits is 1 to MaxPermits for Kind Permit, which has one resource; else 0;
//  3. Nonce is not 0.
type Request struct {
	Nonce     Nonce
	Resources []fencing.Resource // all or none, under one token
	Kind      Kind
	Permits   int  // the number of slots, for Kind Permit
	Mode      Mode // the mode that the caller expects
	Wait      bool // queue for a lock that is not free
	Holder    string
	Metadata  map[string]string
	// User is the authenticated user, for an engine whose sessions do not have one.
	// Empty without users.
	User string
	// Repeated says that an earlier Acquire of this attempt was not answered. An engine
	// without sessions releases what that call may have left.
	Repeated bool
	// Queued, if not nil, is called at most once, when the attempt is queued. It may
	// be called from any goroutine and must not block.
	Queued func()
}

// Validate returns the first rule that r breaks, as an error that matches ErrInvalid
// or fencing.ErrInvalidResource.
func (r *Request) Validate() error {
	if r.Nonce == 0 {
		return fmt.Errorf("%w: nonce 0", ErrInvalid)
	}
	if err := validateResources(r.Resources, r.Kind); err != nil {
		return err
	}
	switch {
	case r.Kind > Permit:
		return fmt.Errorf("%w: %s", ErrInvalid, r.Kind)
	case r.Kind == Permit && (r.Permits < 1 || r.Permits > MaxPermits):
		return fmt.Errorf("%w: permits (%d) must be from 1 to %d", ErrInvalid, r.Permits, MaxPermits)
	case r.Kind != Permit && r.Permits != 0:
		return fmt.Errorf("%w: permits (%d) with kind %s", ErrInvalid, r.Permits, r.Kind)
	case r.Mode > Correctness:
		return fmt.Errorf("%w: %s", ErrInvalid, r.Mode)
	}
	if err := ValidateHolder(r.Holder); err != nil {
		return err
	}
	return ValidateMetadata(r.Metadata)
}

// ValidateHolder validates the name of a holder.
func ValidateHolder(name string) error {
	switch {
	case name == "":
		return nil
	case len(name) > MaxHolderLen:
		return fmt.Errorf("%w: the holder's name has %d bytes, at most %d are allowed", ErrInvalid, len(name), MaxHolderLen)
	case fencing.Resource(name).Validate() != nil:
		return fmt.Errorf("%w: the holder's name %q must be printable UTF-8", ErrInvalid, name)
	}
	return nil
}

func validateResources(resources []fencing.Resource, kind Kind) error {
	if n := len(resources); n < 1 || n > MaxResources {
		return fmt.Errorf("%w: a set has 1 to %d resources, not %d", ErrInvalid, MaxResources, n)
	}
	for i, name := range resources {
		if err := name.Validate(); err != nil {
			return err
		}
		if i > 0 && resources[i-1] >= name {
			return fmt.Errorf("%w: resources must be in ascending order, each once: %q, %q", ErrInvalid, resources[i-1], name)
		}
	}
	if kind != Permit {
		return nil
	}
	if len(resources) != 1 {
		return fmt.Errorf("%w: permits are for one resource, not a set of %d; take them one after the other", ErrInvalid,
			len(resources))
	}
	if longest := resources[0].Slot(MaxPermits); longest.Validate() != nil {
		return fmt.Errorf("%w: the name %q leaves no room for the number of a slot, at most %d bytes in all",
			ErrInvalid, resources[0], fencing.MaxResourceLen)
	}
	return nil
}

// ValidateMetadata validates the metadata of a lease.
func ValidateMetadata(metadata map[string]string) error {
	if len(metadata) > MaxMetadata {
		return fmt.Errorf("%w: %d entries of metadata, at most %d are allowed", ErrInvalid, len(metadata), MaxMetadata)
	}
	total := 0
	for key, value := range metadata {
		if key == "" || len(key) > MaxMetadataKeyLen {
			return fmt.Errorf("%w: metadata key %.40q must have 1 to %d bytes", ErrInvalid, key, MaxMetadataKeyLen)
		}
		if !utf8.ValidString(key) || !utf8.ValidString(value) {
			return fmt.Errorf("%w: metadata %.40q must be UTF-8, key and value", ErrInvalid, key)
		}
		total += len(key) + len(value)
	}
	if total > MaxMetadataLen {
		return fmt.Errorf("%w: metadata has %d bytes, at most %d are allowed", ErrInvalid, total, MaxMetadataLen)
	}
	return nil
}

// SortedSet returns the resources in ascending order, without duplicates. It does not
// change the given slice, but may return it.
func SortedSet(resources []fencing.Resource) []fencing.Resource {
	if len(resources) == 1 {
		return resources
	}
	sorted := slices.Clone(resources)
	slices.Sort(sorted)
	return slices.Compact(sorted)
}
