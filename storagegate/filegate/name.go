package filegate

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/leased-project/leased/fencing"
)

// longest is how long an escaped name may be: file systems allow 255 bytes, and
// the marks have a suffix.
const longest = 200

// escape is the name of the resource's file. No two resources share one, also
// on file systems that do not tell upper from lower case: lower case letters,
// digits, hyphens, underscores and inner dots stand for themselves, other bytes
// are written as %xx, and a name that gets too long becomes its hash.
func escape(resource fencing.Resource) string {
	var b strings.Builder
	for i := range len(resource) {
		c := resource[i]
		switch {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '-', c == '_', c == '.' && i > 0:
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "%%%02x", c)
		}
	}
	if b.Len() <= longest {
		return b.String()
	}
	sum := sha256.Sum256([]byte(resource))
	return "~" + hex.EncodeToString(sum[:])
}

// parseMark reads what Gate.raise wrote.
func parseMark(path, text string, resource fencing.Resource) (fencing.Token, error) {
	first, rest, _ := strings.Cut(text, "\n")
	token, err := fencing.ParseToken(first)
	if err != nil {
		return fencing.None, fmt.Errorf("read %s: %w: %w", path, ErrDamaged, err)
	}
	if rest != string(resource)+"\n" {
		return fencing.None, fmt.Errorf("read %s: %w: it is the mark of %.80q", path, ErrDamaged, strings.TrimSuffix(rest, "\n"))
	}
	return token, nil
}
