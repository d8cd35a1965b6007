//go:build !unix

package filegate

import (
	"context"
	"errors"
)

// lock fails on systems without flock, where two processes could write at the
// same time.
func lock(context.Context, string) (*held, error) {
	return nil, errors.New("lock the resource: this system has no flock; use another gate")
}

// held is not used on these systems.
type held struct{}

func (*held) release()     {}
func (*held) check() error { return ErrLockRemoved }
