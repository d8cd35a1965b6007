package storagegate

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/leased-project/leased/fencing"
)

// maxFileName is the maximum length of a file name. File systems allow 255 bytes,
// and marks and temporary files have a suffix.
const maxFileName = 200

// FileName returns a name for the file or the object of a resource. No other
// resource has it, even on a file system that ignores case. Lower case letters,
// digits, hyphens, underscores and dots other than the first character are
// unchanged. Other bytes become %xx. A name that becomes too long is replaced by
// "~" and its SHA-256.
func FileName(resource fencing.Resource) string {
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
	if b.Len() <= maxFileName {
		return b.String()
	}
	sum := sha256.Sum256([]byte(resource))
	return "~" + hex.EncodeToString(sum[:])
}
