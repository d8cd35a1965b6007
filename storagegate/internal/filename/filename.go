// Package filename converts resources to file names and object keys.
package filename

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/leased-project/leased/fencing"
)

// maxLen is the maximum length of an escaped name. File systems allow 255 bytes,
// and marks and temporary files have a suffix.
const maxLen = 200

// Escape returns a name that no other resource has, even on a file system that
// ignores case. Lower case letters, digits, hyphens, underscores and dots other
// than the first character are unchanged. Other bytes become %xx. A name that
// becomes too long is replaced by "~" and its SHA-256.
func Escape(resource fencing.Resource) string {
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
	if b.Len() <= maxLen {
		return b.String()
	}
	sum := sha256.Sum256([]byte(resource))
	return "~" + hex.EncodeToString(sum[:])
}
