package tfstate

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/storagegate"
)

var (
	// ErrNotLocked means that a write names no lock, or one that is not the newest of
	// the state.
	ErrNotLocked = errors.New("the state is not locked by this run")
	errNotFound  = errors.New("not found")
	errRequest   = errors.New("invalid request")
)

// notLocked returns the error of a write whose ID is not the ID of the lock.
func notLocked(resource fencing.Resource, id string) error {
	if id == "" {
		return fmt.Errorf("write %q without a lock: %w; set lock_address and unlock_address of the backend, and do not use "+
			"-lock=false", string(resource), ErrNotLocked)
	}
	return fmt.Errorf("write %q with lock ID %q: %w: its lock was removed by force-unlock, or lost, and another run may "+
		"have written since; compare the states, and do not push errored.tfstate", string(resource), id, ErrNotLocked)
}

// heldError means that another run has locked the state.
type heldError struct{ by LockInfo }

func (e *heldError) Error() string {
	return fmt.Sprintf("the state is locked by %s: %s, ID %s", e.by.Who, e.by.Operation, e.by.ID)
}

// statuses are the status codes of errors. The http backend repeats requests that get a
// code of 500 or more; all requests can be repeated.
var statuses = []struct {
	err    error
	status int
}{
	{ErrNotLocked, http.StatusConflict},
	{fencing.ErrStale, http.StatusConflict},
	{errNotFound, http.StatusNotFound},
	{errRequest, http.StatusBadRequest},
	{fencing.ErrInvalidResource, http.StatusBadRequest},
	{lease.ErrInvalid, http.StatusBadRequest},
	{lease.ErrHeld, http.StatusLocked},
	{lease.ErrForbidden, http.StatusForbidden},
	{lease.ErrUnavailable, http.StatusServiceUnavailable},
	{lease.ErrUncertain, http.StatusServiceUnavailable},
	{storagegate.ErrUncertain, http.StatusServiceUnavailable},
	{context.DeadlineExceeded, http.StatusServiceUnavailable},
}

func statusOf(err error) int {
	if errors.As(err, new(*heldError)) {
		return http.StatusLocked
	}
	for _, s := range statuses {
		if errors.Is(err, s.err) {
			return s.status
		}
	}
	return http.StatusInternalServerError
}
