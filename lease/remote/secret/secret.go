package secret

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"
)

const (
	// prefix begins every secret, so that people and scanners know one when
	// they see it in the wrong place.
	prefix = "leased_"
	// size is that of the random part in bytes: nobody guesses 256 bits.
	size = 32
)

// ErrForm: a text is no secret that New has made.
var ErrForm = errors.New("not a secret of `leased user add`")

// Hash is what a service keeps of a secret.
//
// It is a plain SHA-256. The slow functions for passwords make guessing
// expensive; what is guessed here are 256 random bits, and Check lets nothing
// else be a secret, so there is nothing to make more expensive than it is.
type Hash [sha256.Size]byte

// New makes a secret.
func New() string {
	random := make([]byte, size)
	_, _ = rand.Read(random) // it never fails: see its documentation
	return prefix + hex.EncodeToString(random)
}

// Check refuses what New cannot have made. The error does not repeat the text.
func Check(text string) error {
	digits, ok := strings.CutPrefix(text, prefix)
	if !ok || len(digits) != hex.EncodedLen(size) || strings.ToLower(digits) != digits {
		return fmt.Errorf("%w: one is %s and %d hexadecimal digits", ErrForm, prefix, hex.EncodedLen(size))
	}
	if _, err := hex.DecodeString(digits); err != nil {
		return fmt.Errorf("%w: one is %s and %d hexadecimal digits", ErrForm, prefix, hex.EncodedLen(size))
	}
	return nil
}

// HashOf is the hash of a secret.
func HashOf(text string) Hash { return sha256.Sum256([]byte(text)) }

// ReadFile reads a file that has a secret and nothing else.
func ReadFile(path string) (string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("read the secret: %w", err)
	}
	text := strings.TrimSpace(string(data))
	if err := Check(text); err != nil {
		return "", fmt.Errorf("%s has %w", path, err)
	}
	return text, nil
}
