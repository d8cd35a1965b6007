package redlockadapter_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/redlockadapter"
)

// A caller's deadline counts, however long a node may take: go-redis looks at it
// only if it is told to.
func TestTheCallersDeadlineEndsACall(t *testing.T) {
	f := startFleet(t, 1)
	f.config.MaxTTL, f.config.NodeTimeout = time.Hour, time.Hour
	f.init(t)
	b := f.backend(t)
	s := open(t, b, time.Hour)
	f.servers[0].Pause()
	t.Cleanup(f.servers[0].Resume) // before the backend is closed
	limit := patient(t)
	for name, call := range map[string]func(ctx context.Context) error{
		"New": func(ctx context.Context) error {
			_, err := redlockadapter.New(ctx, f.config)
			return err
		},
		"Init":       func(ctx context.Context) error { return redlockadapter.Init(ctx, f.config, fencing.None) },
		"RaiseFloor": func(ctx context.Context) error { return b.RaiseFloor(ctx, 1000) },
		"NodeStatuses": func(ctx context.Context) error {
			return b.NodeStatuses(ctx)[0].Err
		},
		"Acquire": func(ctx context.Context) error {
			_, err := s.Acquire(ctx, request(1, "a"))
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			done := make(chan error, 1)
			go func() { done <- call(ctx) }()
			select {
			case err := <-done:
				require.Error(t, err)
				require.NotErrorIs(t, err, lease.ErrHeld, "the node has not said so")
			case <-limit.Done():
				require.Fail(t, "the call goes on after its caller's deadline, for as long as NodeTimeout says")
			}
		})
	}
}
