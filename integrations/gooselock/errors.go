package gooselock

import "errors"

// ErrNotLocked means that goose records a version without the lock: the provider has
// the Store but not its Locker, or the call does not lock.
var ErrNotLocked = errors.New("goose records a version without a lease; give goose.NewProvider all of Locker.Options")
