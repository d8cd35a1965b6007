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

// errChanged says that the object is not what it was, and nothing was written.
var errChanged = errors.New("the object has changed")

const (
	// swapTries is how often a swap without an answer is tried.
	swapTries = 4
	// grace is how long a caller that has given up waits to learn what became
	// of its write.
	grace = 10 * time.Second
)

// commit makes the swap. It returns nil when the write is in the store,
// errChanged when it is not and never will be, ErrUncertain when nobody can
// say, and any other error when the store has refused it.
func (g *Gate) commit(ctx context.Context, key string, s *swap) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var lost error // of the first try that was not answered
	for range swapTries {
		err := g.put(ctx, key, s)
		switch status := statusOf(err); {
		case err == nil:
			return nil
		case lost == nil && (status == http.StatusPreconditionFailed || status == http.StatusConflict ||
			status == http.StatusNotFound && s.base.exists): // else it is the bucket that is not there
			return errChanged
		case lost == nil && status >= 400 && status < 500 && status != http.StatusRequestTimeout:
			return fmt.Errorf("write object %s: %w", key, err)
		}
		if lost == nil {
			lost = err
		}
		// The object has changed if this try, or one before, has come through:
		// its line is never the same twice. If it has not changed, a try may
		// still be on its way; to try again ends that, since only one can win.
		landed, changed, err := g.look(ctx, key, s)
		switch {
		case err != nil:
			return fmt.Errorf("write object %s: %w: %w; to find out failed too: %w", key, storagegate.ErrUncertain, lost, err)
		case landed:
			return nil
		case changed:
			return errChanged
		case ctx.Err() != nil:
			return fmt.Errorf("write object %s: %w: %w", key, storagegate.ErrUncertain, lost)
		}
	}
	return fmt.Errorf("write object %s: %w: %d tries were not answered: %w", key, storagegate.ErrUncertain, swapTries, lost)
}

// look reads what became of a swap without an answer: landed, if it is in the
// store or was before others wrote; changed, if others wrote in its place; and
// neither, if all is as before.
func (g *Gate) look(ctx context.Context, key string, s *swap) (landed, changed bool, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
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
	return false, false, errors.New("the object has forgotten, or something else has written it")
}
