package storagegate_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate"
)

func TestMonitorRecords(t *testing.T) {
	stale := &fencing.StaleError{Resource: "orders", Token: 3, Mark: 5}
	tokenless := &fencing.StaleError{Resource: "orders", Token: fencing.None, Mark: 5}
	jump := &fencing.JumpError{Resource: "orders", Token: 99, Mark: 5, MaxJump: 10}
	another := &fencing.StaleError{Resource: "stock", Token: 3, Mark: 5}
	anotherJump := &fencing.JumpError{Resource: "stock", Token: 99, Mark: 5, MaxJump: 10}
	for _, tt := range []struct {
		name  string
		token fencing.Token
		err   error
		want  *storagegate.Decision // nil: not a decision
	}{
		{"admitted", 5, nil, &storagegate.Decision{Resource: "orders", Token: 5, Mark: 5, Outcome: storagegate.Admitted}},
		{"admitted without a token", 0, nil, &storagegate.Decision{Resource: "orders", Outcome: storagegate.Admitted}},
		{"stale", 3, stale, &storagegate.Decision{Resource: "orders", Token: 3, Mark: 5, Outcome: storagegate.Stale}},
		{"wrapped", 3, fmt.Errorf("gate: %w", stale), &storagegate.Decision{Resource: "orders", Token: 3, Mark: 5,
			Outcome: storagegate.Stale}},
		{"tokenless", 0, tokenless, &storagegate.Decision{Resource: "orders", Mark: 5, Outcome: storagegate.Tokenless}},
		{"jump", 99, jump, &storagegate.Decision{Resource: "orders", Token: 99, Mark: 5, Outcome: storagegate.JumpExceeded}},
		{"failed write", 5, errors.New("disk full"), nil},
		{"unknown outcome", 5, fmt.Errorf("commit: %w", storagegate.ErrUncertain), nil},
		{"enter without a token", 0, fencing.ErrNoToken, nil},
		{"write that another gate refused", 5, another, nil},
		{"write that another gate refused for its jump", 5, anotherJump, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var m storagegate.Monitor
			var reported []storagegate.Decision
			m.Audit(func(_ context.Context, d storagegate.Decision) { reported = append(reported, d) })
			require.Equal(t, tt.err, m.Record(context.Background(), "orders", tt.token, tt.err),
				"Record must return its argument")
			counts := m.Counts()
			total := counts.Admitted + counts.Stale + counts.Tokenless + counts.JumpExceeded
			if tt.want == nil {
				require.Empty(t, reported)
				require.Zero(t, total)
				return
			}
			require.Equal(t, []storagegate.Decision{*tt.want}, reported)
			require.Equal(t, uint64(1), total)
		})
	}
}

func TestMonitorCountsEverything(t *testing.T) {
	var m storagegate.Monitor // no hook
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 1000 {
				_ = m.Record(context.Background(), "orders", 1, nil)
				_ = m.Record(context.Background(), "orders", 1, &fencing.StaleError{Token: 1, Mark: 2})
			}
		})
	}
	all.Wait()
	require.Equal(t, storagegate.Counts{Admitted: 8000, Stale: 8000}, m.Counts())
}

func TestOutcomeNames(t *testing.T) {
	names := map[storagegate.Outcome]string{storagegate.Admitted: "admitted", storagegate.Stale: "stale",
		storagegate.Tokenless: "tokenless", storagegate.JumpExceeded: "jump exceeded", 0: "unknown", 99: "unknown"}
	for outcome, want := range names {
		require.Equal(t, want, outcome.String())
	}
}
