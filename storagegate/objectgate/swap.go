package objectgate

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/leased-project/leased/storagegate"
)

// errChanged means that the object has changed and nothing was written.
var errChanged = errors.New("the object has changed")

const (
	// swapTries is how often a swap is sent if there is no response.
	swapTries = 4
	// checkTimeout limits the check of a write without a response. It also applies
	// if the caller's context has ended.
	checkTimeout = 10 * time.Second
)

// commit executes the swap. It returns nil if the write is in the store,
// errChanged if it is not and never will be, ErrUncertain if that is unknown, and
// any other error if the store has refused it.
func (g *Gate) commit(ctx context.Context, key string, s *swap) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var lost error // of the first request without a response
	for range swapTries {
		err := g.put(ctx, key, s)
		switch status := statusOf(err); {
		case err == nil:
			return nil
		case lost == nil && (status == http.StatusPreconditionFailed || status == http.StatusConflict ||
			status == http.StatusNotFound && s.base.exists): // otherwise the bucket is missing
			return errChanged
		case lost == nil && status >= 400 && status < 500 && status != http.StatusRequestTimeout:
			return fmt.Errorf("write object %s: %w", key, err)
		}
		if lost == nil {
			lost = err
		}
		// If one of the requests has written, the object has changed, because every
		// write has a unique line. If the object is unchanged, a request may still
		// be on its way. Send the swap again: only one of the requests can succeed.
		written, changed, err := g.outcome(ctx, key, s)
		switch {
		case err != nil:
			return fmt.Errorf("write object %s: %w: %w; the check of the outcome failed too: %w",
				key, storagegate.ErrUncertain, lost, err)
		case written:
			return nil
		case changed:
			return errChanged
		case ctx.Err() != nil:
			return fmt.Errorf("write object %s: %w: %w", key, storagegate.ErrUncertain, lost)
		}
	}
	return fmt.Errorf("write object %s: %w: no response to %d requests: %w",
		key, storagegate.ErrUncertain, swapTries, lost)
}

// outcome checks a swap without a response. written means that it was executed,
// even if others have written since. changed means that others have written
// instead. Neither means that the object is unchanged.
func (g *Gate) outcome(ctx context.Context, key string, s *swap) (written, changed bool, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), checkTimeout)
	defer cancel()
	now, err := g.head(ctx, key)
	if err != nil {
		return false, false, err
	}
	switch {
	case slices.Contains(now.writes, s.nonce):
		return true, false, nil
	case now.exists == s.base.exists && now.etag == s.base.etag:
		return false, false, nil
	case s.base.gated() && slices.Contains(now.writes, s.base.writes[0]):
		return false, true, nil // all writes since the base are known
	case !s.base.gated() && now.gated() && len(now.writes) < remembered:
		return false, true, nil // all writes ever are known
	}
	return false, false, errors.New("the object does not contain the nonce of the write any more, " +
		"or another program has written it")
}
