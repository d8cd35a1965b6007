package secret

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"regexp"
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

// ErrPath: a secret was given where the name of its file belongs.
var ErrPath = errors.New("the name of a file is needed here, and this is a secret itself (not shown); write it into a file, and name that")

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

// inside is a secret, or most of one, inside of a text. A file may well be called
// leased_members.
var inside = regexp.MustCompile(prefix + `[0-9A-Fa-f]{16,}`)

// In reports whether a text has a secret in it.
func In(text string) bool { return inside.MatchString(text) }

// Hide is a text for a message or a log: without the secrets in it.
func Hide(text string) string { return inside.ReplaceAllString(text, "(a secret, not shown)") }

// CheckPath refuses a secret where the name of a file belongs. The error does not
// repeat it, as that of a file that does not exist would.
func CheckPath(path string) error {
	if In(path) {
		return ErrPath
	}
	return nil
}

// ReadFile reads a file that has a secret and nothing else.
func ReadFile(path string) (string, error) {
	if err := CheckPath(path); err != nil {
		return "", fmt.Errorf("read the secret: %w", err)
	}
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
