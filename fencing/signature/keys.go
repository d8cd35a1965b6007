package signature

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"fmt"
)

// KeyIDLen is the length of a key id.
const KeyIDLen = 16

// The types of the PEM blocks.
const (
	pemPrivate = "PRIVATE KEY"
	pemPublic  = "PUBLIC KEY"
)

// KeyID returns the id of a public key: the first 8 bytes of its SHA-256 hash, in
// hexadecimal. It is derived from the key, so nobody has to configure it.
func KeyID(key ed25519.PublicKey) string {
	hash := sha256.Sum256(key)
	return hex.EncodeToString(hash[:KeyIDLen/2])
}

// ParseSigner reads a private key: one PEM block of PKCS #8, as `leased keys new`
// and `openssl genpkey -algorithm ed25519` write it.
func ParseSigner(text []byte) (*Signer, error) {
	blocks, err := parseBlocks(text, pemPrivate)
	if err != nil {
		return nil, err
	}
	if len(blocks) != 1 {
		return nil, fmt.Errorf("%w: there are %d private keys, give one", ErrInvalidKey, len(blocks))
	}
	parsed, err := x509.ParsePKCS8PrivateKey(blocks[0])
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalidKey, err)
	}
	key, ok := parsed.(ed25519.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("%w: the key is a %T, an Ed25519 key is required", ErrInvalidKey, parsed)
	}
	return NewSigner(key)
}

// MarshalSigner returns the text that ParseSigner reads. It is a secret: anyone
// who has it can sign every token.
func MarshalSigner(s *Signer) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(s.key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: pemPrivate, Bytes: der}), nil
}

// ParsePublicKeys reads public keys: PEM blocks, one after the other, as `leased
// keys public` and `openssl pkey -pubout` write them.
func ParsePublicKeys(text []byte) ([]ed25519.PublicKey, error) {
	blocks, err := parseBlocks(text, pemPublic)
	if err != nil {
		return nil, err
	}
	keys := make([]ed25519.PublicKey, len(blocks))
	for i, der := range blocks {
		parsed, err := x509.ParsePKIXPublicKey(der)
		if err != nil {
			return nil, fmt.Errorf("%w: key %d: %w", ErrInvalidKey, i+1, err)
		}
		key, ok := parsed.(ed25519.PublicKey)
		if !ok {
			return nil, fmt.Errorf("%w: key %d is a %T, an Ed25519 key is required", ErrInvalidKey, i+1, parsed)
		}
		keys[i] = key
	}
	return keys, nil
}

// MarshalPublicKey returns the PEM block of a key. Concatenated blocks are a list
// for ParsePublicKeys.
func MarshalPublicKey(key ed25519.PublicKey) ([]byte, error) {
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: pemPublic, Bytes: der}), nil
}

// parseBlocks returns the contents of the PEM blocks in text, all of one type.
// Text between blocks is a comment. A block that cannot be decoded is an error,
// because a key would be missing without notice.
func parseBlocks(text []byte, kind string) ([][]byte, error) {
	begun := bytes.Count(text, []byte("-----BEGIN "))
	var all [][]byte
	for {
		block, rest := pem.Decode(text)
		if block == nil {
			break
		}
		if block.Type != kind {
			return nil, fmt.Errorf("%w: found a %q, a %q is required", ErrInvalidKey, block.Type, kind)
		}
		all, text = append(all, block.Bytes), rest
	}
	if len(all) != begun || begun == 0 {
		return nil, fmt.Errorf("%w: %d of %d PEM blocks of the type %q can be read; at least one is required",
			ErrInvalidKey, len(all), begun, kind)
	}
	return all, nil
}
