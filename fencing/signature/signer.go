package signature

import (
	"crypto/ed25519"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/leased-project/leased/fencing"
)

// Version is the version of the format of signed tokens.
const Version = 1

// prefix and the version start the text of every signed token. They are part of the
// signed message, so a signature that was made for another purpose is never valid here.
const (
	prefix        = "leased"
	versionPrefix = prefix + "1"
)

// MaxLen is the length of the longest signed token.
const MaxLen = len(versionPrefix) + 1 + KeyIDLen + 1 + maxDigits + 1 + maxDigits + 1 + signatureLen

const (
	maxDigits    = 16 // of a number below 2^53
	signatureLen = 86 // 64 bytes as base64
)

// maxExpiry bounds the expiry of a signed token, in seconds since 1970.
const maxExpiry = int64(fencing.MaxToken)

// signatureText encodes a signature. Strict refuses a second text for the same
// bytes.
var signatureText = base64.RawURLEncoding.Strict()

// Signer signs tokens with one private key. All methods may be called
// concurrently.
//
// A signed token is the text leased1.KEYID.EXPIRY.TOKEN.SIGNATURE: the version,
// the id of the key, the Unix time in seconds at which the signature expires, the
// token, both in decimal, and the Ed25519 signature as base64url without padding.
// The signed message is the text up to and including the last dot, followed by the
// resource. The fields before the resource contain no dot of their own, so each
// message has one meaning.
type Signer struct {
	key ed25519.PrivateKey
	id  string
}

// NewSigner returns a Signer. ParseSigner reads the key from a file.
func NewSigner(key ed25519.PrivateKey) (*Signer, error) {
	if len(key) != ed25519.PrivateKeySize {
		return nil, fmt.Errorf("%w: an Ed25519 private key has %d bytes, this one has %d",
			ErrInvalidKey, ed25519.PrivateKeySize, len(key))
	}
	return &Signer{key: key, id: KeyID(key.Public().(ed25519.PublicKey))}, nil
}

// KeyID returns the id of the key.
func (s *Signer) KeyID() string { return s.id }

// PublicKey returns the key that verifies the signatures.
func (s *Signer) PublicKey() ed25519.PublicKey { return s.key.Public().(ed25519.PublicKey) }

// Sign returns the signed token of a grant. Gates refuse it from expires on,
// rounded down to a second.
func (s *Signer) Sign(resource fencing.Resource, token fencing.Token, expires time.Time) (string, error) {
	if err := resource.Validate(); err != nil {
		return "", err
	}
	if !token.Valid() {
		return "", fmt.Errorf("%w: sign %d: a token of a grant is from 1 to %d",
			fencing.ErrInvalidToken, uint64(token), fencing.MaxToken)
	}
	unix := expires.Unix()
	if unix < 0 || unix > maxExpiry {
		return "", fmt.Errorf("sign the token of %q: the expiry %v is out of range", string(resource), expires)
	}
	start := head(s.id, unix, token)
	return start + signatureText.EncodeToString(ed25519.Sign(s.key, []byte(start+string(resource)))), nil
}

// head returns the text of a signed token before its signature.
func head(id string, expiry int64, token fencing.Token) string {
	return strings.Join([]string{versionPrefix, id, strconv.FormatInt(expiry, 10), token.String(), ""}, ".")
}

// signed is a parsed signed token, whose signature is not verified.
type signed struct {
	head      string // up to and including the last dot
	keyID     string
	expiry    int64
	token     fencing.Token
	signature []byte
}

// parse parses a signed token. Only the text that Sign returns is accepted:
// with two texts for one signature, a list of revoked texts would have gaps.
func parse(text string) (s signed, err error) {
	if len(text) > MaxLen {
		return s, fmt.Errorf("%w: the text has %d bytes, at most %d are allowed", ErrMalformed, len(text), MaxLen)
	}
	parts := strings.Split(text, ".")
	if len(parts) != 5 || parts[0] != versionPrefix {
		if _, err := fencing.ParseToken(text); err == nil {
			return s, fmt.Errorf("%w: %s is a token without a signature; send the signed token of the lease", ErrMalformed, text)
		}
		if version, found := newer(parts[0]); found {
			return s, fmt.Errorf("%w: the token has format version %d, and this build of the gate reads versions up to %d; "+
				"upgrade the gate to a build that reads version %d",
				ErrNewer, version, Version, version)
		}
		return s, fmt.Errorf("%w: the text must be %s.KEYID.EXPIRY.TOKEN.SIGNATURE", ErrMalformed, versionPrefix)
	}
	expiry, err := fencing.ParseToken(parts[2])
	if err != nil {
		return s, fmt.Errorf("%w: its expiry is not a decimal number below 2^53", ErrMalformed)
	}
	if s.token, err = fencing.ParseToken(parts[3]); err != nil || s.token == fencing.None {
		return s, fmt.Errorf("%w: its token is not a decimal number from 1 to %d", ErrMalformed, fencing.MaxToken)
	}
	s.keyID, s.expiry, s.head = parts[1], int64(expiry), text[:len(text)-len(parts[4])]
	// The decoder skips line breaks, so only the length excludes them.
	s.signature, err = signatureText.DecodeString(parts[4])
	if err != nil || len(parts[4]) != signatureLen || len(s.signature) != ed25519.SignatureSize {
		return s, fmt.Errorf("%w: its signature is not %d characters of base64url", ErrMalformed, signatureLen)
	}
	return s, nil
}

// newer returns the version in the first word of a signed token, if it is newer than
// Version.
func newer(word string) (version uint64, isNewer bool) {
	number, ok := strings.CutPrefix(word, prefix)
	version, err := strconv.ParseUint(number, 10, 16)
	return version, ok && err == nil && version > Version
}
