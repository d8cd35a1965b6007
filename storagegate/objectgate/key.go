package objectgate

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/leased-project/leased/fencing"
)

// maxKey is how long an escaped name may be. Stores that keep objects as files
// allow 255 bytes, and need some for themselves.
const maxKey = 200

// Key is the key of a resource, unless the option Keys says otherwise: its name
// with all but letters, digits, - and _ escaped as %XX, since stores that keep
// objects as files take dots and slashes for folders. A name that gets too long
// is replaced by ~ and its SHA-256.
func Key(resource fencing.Resource) string {
	var key strings.Builder
	for i := range len(resource) {
		c := resource[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == '_':
			key.WriteByte(c)
		default:
			fmt.Fprintf(&key, "%%%02X", c)
		}
	}
	if key.Len() > maxKey {
		sum := sha256.Sum256([]byte(resource))
		return "~" + hex.EncodeToString(sum[:])
	}
	return key.String()
}
