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
	// prefix begins every secret, so that people and scanners recognize one in the
	// wrong place.
	prefix = "leased_"
	// size is the length of the random part in bytes. 256 bits cannot be guessed.
	size = 32
)

// ErrForm means that a text does not have the form of a secret from New.
var ErrForm = errors.New("not a secret from `leased user add`")

// ErrPath means that a secret was given instead of the name of its file.
var ErrPath = errors.New("the name of a file is needed here, and this is a secret itself (not shown); write it " +
	"into a file, and name that")

// Hash is the hash of a secret that a service stores.
//
// It is a plain SHA-256. Slow hashes for passwords make guessing expensive. A secret has
// 256 random bits, and Check refuses anything else, so guessing is infeasible anyway.
type Hash [sha256.Size]byte

// New returns a new secret.
func New() string {
	random := make([]byte, size)
	_, _ = rand.Read(random) // never fails, see its documentation
	return prefix + hex.EncodeToString(random)
}

var form = regexp.MustCompile(fmt.Sprintf("^%s[0-9a-f]{%d}$", prefix, hex.EncodedLen(size)))

// Check returns an error if New cannot have created the text. The error does not
// contain the text.
func Check(text string) error {
	if !form.MatchString(text) {
		return fmt.Errorf("%w: one is %s and %d hexadecimal digits", ErrForm, prefix, hex.EncodedLen(size))
	}
	return nil
}

// HashOf returns the hash of a secret.
func HashOf(text string) Hash { return sha256.Sum256([]byte(text)) }

// inside matches a secret, or most of one, inside a text. It does not match file names
// such as leased_members.
var inside = regexp.MustCompile(prefix + `[0-9A-Fa-f]{16,}`)

// In reports whether a text contains a secret.
func In(text string) bool { return inside.MatchString(text) }

// Hide returns a text without the secrets in it, for messages and logs.
func Hide(text string) string { return inside.ReplaceAllString(text, "(a secret, not shown)") }

// CheckPath returns an error if a file name is a secret. Unlike the error of a missing
// file, it does not contain the name.
func CheckPath(path string) error {
	if In(path) {
		return ErrPath
	}
	return nil
}

// ReadFile reads a file that contains only a secret.
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
		return "", fmt.Errorf("the content of %s is %w", path, err)
	}
	return text, nil
}
