package filegate

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/leased-project/leased/fencing"
)

// readMark reads the mark of a resource. Its file has two lines: the token and
// the resource. The second line shows an operator whose mark it is, and reveals a
// file that was copied from elsewhere.
func readMark(path string, resource fencing.Resource) (fencing.Token, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return fencing.None, nil
	}
	if err != nil {
		return fencing.None, fmt.Errorf("read the mark of %q: %w", string(resource), err)
	}
	first, rest, _ := strings.Cut(string(text), "\n")
	token, err := fencing.ParseToken(first)
	if err != nil {
		return fencing.None, fmt.Errorf("read %s: %w: %w", path, ErrDamaged, err)
	}
	if rest != string(resource)+"\n" {
		return fencing.None, fmt.Errorf("read %s: %w: it is the mark of %.80q",
			path, ErrDamaged, strings.TrimSuffix(rest, "\n"))
	}
	return token, nil
}

// markText returns the content of a mark's file.
func markText(resource fencing.Resource, token fencing.Token) []byte {
	return []byte(token.String() + "\n" + string(resource) + "\n")
}
