package engine

import (
	"context"
	"reflect"
	"slices"
	"time"
)

// Poll implements Watch for a Backend without notifications: it calls inspect once per pause. It calls
// changed with the first status and after each change, until ctx ends or inspect fails.
func Poll(ctx context.Context, pause time.Duration, inspect func() (Status, error), changed func(Status)) error {
	var last Status
	for first := true; ; first = false {
		status, err := inspect()
		switch {
		case ctx.Err() != nil:
			return Cause(ctx)
		case err != nil:
			return err
		}
		timeless := status
		timeless.Holders, timeless.Waiters = withoutTTL(status.Holders), withoutTTL(status.Waiters)
		if first || !reflect.DeepEqual(timeless, last) {
			changed(status)
		}
		last = timeless
		if err := Sleep(ctx, pause); err != nil {
			return err
		}
	}
}

// withoutTTL returns parties without the time that they have left: its passing is not a change.
func withoutTTL(parties []Party) []Party {
	parties = slices.Clone(parties)
	for i := range parties {
		parties[i].TTL = 0
	}
	return parties
}
