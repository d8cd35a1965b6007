package engine_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/lease/engine"
)

func TestInstantTakesTheMorePessimisticClock(t *testing.T) {
	at := func(running, boot time.Duration) engine.Instant {
		return engine.NewInstant(time.Unix(0, 0).Add(running), boot)
	}
	tests := []struct {
		name       string
		from, to   engine.Instant
		since, til time.Duration
	}{
		{"both agree", at(1, 1), at(6, 6), 5, 5},
		{"suspended in between", at(1, 1), at(6, 106), 105, 5},
		{"the running clock ran further", at(1, 1), at(106, 6), 105, 5},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			require.Equal(t, tt.since, tt.to.Since(tt.from), "more time has passed")
			require.Equal(t, tt.til, tt.from.Until(tt.to), "less time is left")
		})
	}
	deadline := at(0, 0).Add(10)
	require.Equal(t, time.Duration(4), at(6, 6).Until(deadline))
	require.Equal(t, time.Duration(-96), at(6, 106).Until(deadline))
	require.True(t, engine.Instant{}.IsZero())
	require.False(t, at(1, 1).IsZero())
}

func TestSystemClockRuns(t *testing.T) {
	clock := engine.SystemClock()
	first := clock.Now()
	require.True(t, moves(clock))
	require.Less(t, clock.Now().Since(first), time.Hour)
}

// In a synctest bubble the monotonic clock does not advance, so only the clock that
// includes suspend does.
func TestSystemClockReadsAClockThatRunsInSuspend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock, monotonic := engine.SystemClock(), engine.MonotonicClock()
		frozen := monotonic.Now()
		require.True(t, moves(clock))
		require.Zero(t, monotonic.Now().Since(frozen))
	})
}

// moves reports whether the clock advances within many readings.
func moves(clock engine.Clock) bool {
	first := clock.Now()
	for range 1_000_000 {
		if clock.Now().Since(first) > 0 {
			return true
		}
	}
	return false
}
