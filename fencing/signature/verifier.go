package signature

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/leased-project/leased/fencing"
)

// Verifier checks signed tokens with a set of public keys. All methods may be
// called concurrently.
//
// A signature proves that the lock service granted the token for the resource. It
// does not prove that the lease still lasts: pass the returned token to a fence,
// which refuses the tokens of former holders. The expiry limits how long a copied
// signed token can be used. It depends on the clock of the gate;
// the fence does not.
type Verifier struct {
	now  func() time.Time
	keys atomic.Pointer[map[string]ed25519.PublicKey] // by key id
}

// NewVerifier returns a Verifier with these keys. now is the clock that expiries
// are compared with, usually time.Now.
func NewVerifier(now func() time.Time, keys ...ed25519.PublicKey) (*Verifier, error) {
	if now == nil {
		return nil, errors.New("create a verifier of signed tokens: a clock is required; use time.Now")
	}
	v := &Verifier{now: now}
	if err := v.Replace(keys...); err != nil {
		return nil, err
	}
	return v, nil
}

// Replace replaces the set of keys, for a rotation. Signatures of a key that is
// not in the new set are refused from then on. If there is an error, the old set
// stays.
func (v *Verifier) Replace(keys ...ed25519.PublicKey) error {
	if len(keys) == 0 {
		return fmt.Errorf("%w: no public key is given, so every signed token would be refused", ErrInvalidKey)
	}
	set := make(map[string]ed25519.PublicKey, len(keys))
	for _, key := range keys {
		if len(key) != ed25519.PublicKeySize {
			return fmt.Errorf("%w: an Ed25519 public key has %d bytes, this one has %d",
				ErrInvalidKey, ed25519.PublicKeySize, len(key))
		}
		id := KeyID(key)
		if other, ok := set[id]; ok && !other.Equal(key) {
			return fmt.Errorf("%w: two keys have the id %s; make another key", ErrInvalidKey, id)
		}
		set[id] = slices.Clone(key)
	}
	v.keys.Store(&set)
	return nil
}

// KeyIDs returns the ids of the keys, sorted.
func (v *Verifier) KeyIDs() []string { return slices.Sorted(maps.Keys(*v.keys.Load())) }

// Verify returns the token of a signed token that was made for resource. The error
// matches fencing.ErrUnsigned, fencing.ErrInvalidToken, and one of ErrMalformed,
// ErrNewer, ErrUnknownKey, ErrBadSignature and ErrExpired.
func (v *Verifier) Verify(resource fencing.Resource, text string) (fencing.Token, error) {
	return v.verify(resource, text, false)
}

// Recheck is Verify for a signed token that Verify has accepted for this resource
// before. It finds out whether the token has expired or its key was replaced, and does
// not verify the signature again, which is what takes time.
func (v *Verifier) Recheck(resource fencing.Resource, text string) (fencing.Token, error) {
	return v.verify(resource, text, true)
}

func (v *Verifier) verify(resource fencing.Resource, text string, again bool) (fencing.Token, error) {
	s, err := parse(text)
	if err != nil {
		return fencing.None, fmt.Errorf("verify the token for %q: %w", string(resource), err)
	}
	key, ok := (*v.keys.Load())[s.keyID]
	switch {
	case !ok:
		return fencing.None, fmt.Errorf("verify the token for %q: %w: it is signed with key %.16q, and the gate has %s; "+
			"give the gate that public key if the service signs with it",
			string(resource), ErrUnknownKey, s.keyID, strings.Join(v.KeyIDs(), ", "))
	case !again && !ed25519.Verify(key, []byte(s.head+string(resource)), s.signature):
		return fencing.None, fmt.Errorf("verify the token for %q: %w: it was changed, or it was signed for another resource",
			string(resource), ErrBadSignature)
	case v.now().Unix() >= s.expiry:
		return fencing.None, fmt.Errorf("verify the token for %q: %w at %s; "+
			"ask the lock service to sign the token again, and check the clock of the gate",
			string(resource), ErrExpired, time.Unix(s.expiry, 0).UTC().Format(time.RFC3339))
	}
	return s.token, nil
}

// FromValues returns the token of a signed token among the values that a request
// carries under fencing.Header or fencing.MetadataKey. No value means None. More
// than one value is an error, as it is without signatures.
func (v *Verifier) FromValues(resource fencing.Resource, values []string) (fencing.Token, error) {
	if len(values) != 1 {
		return fencing.FromValues(values)
	}
	return v.Verify(resource, values[0])
}
