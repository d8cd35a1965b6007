//go:build !unix

package filegate

import (
	"context"
	"errors"
)

// lock fails where there is no flock: without it two processes could write at
// the same time.
func lock(context.Context, string) (*held, error) {
	return nil, errors.New("take the lock: this system has no flock; use another gate")
}

// held is a lock that was taken; there is none.
type held struct{}

func (*held) release()     {}
func (*held) still() error { return ErrLockRemoved }
