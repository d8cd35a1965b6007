//go:build !unix

package filegate

import (
	"context"
	"errors"
)

// lock fails where there is no flock: without it two processes could write at
// the same time.
func lock(context.Context, string) (unlock func(), err error) {
	return nil, errors.New("take the lock: this system has no flock; use another gate")
}
