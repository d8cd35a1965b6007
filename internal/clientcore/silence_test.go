package clientcore_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/internal/clientcore"
	"github.com/leased-project/leased/lease/engine"
)

// check is one call of Check.
type check struct {
	after    time.Duration // since the call before
	received uint64
}

// every returns n calls at regular intervals, each after so many more messages.
func every(n int, first, more uint64) (checks []check) {
	for i := range n {
		checks = append(checks, check{clientcore.SilenceCheckInterval, first + uint64(i)*more})
	}
	return checks
}

func TestSilence(t *testing.T) {
	for _, tt := range []struct {
		name   string
		checks []check
		silent int // the check that reports it, -1 for none
	}{
		{"heartbeats arrive", every(100, 0, 1), -1},
		{"nothing arrives", every(10, 0, 0), 6},
		{"nothing arrives any more", append(every(20, 0, 1), every(10, 19, 0)...), 25},
		{"a late heartbeat", append(append(every(5, 0, 0), check{clientcore.SilenceCheckInterval, 1}), every(5, 1, 0)...),
			-1},
		{"this process was paused", []check{{0, 7}, {time.Hour, 7}, {clientcore.SilenceCheckInterval, 8}}, -1},
		{"both were paused", []check{{0, 7}, {time.Hour, 7}, {time.Hour, 7}, {time.Hour, 7}}, 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var s clientcore.Silence
			now := engine.NewInstant(time.Unix(1000, 0), time.Hour)
			last, longest := now, time.Duration(0)
			var received uint64
			for i, c := range tt.checks {
				now = now.Add(c.after)
				if received != c.received {
					last, received = now, c.received
				}
				silent := s.Check(now, c.received)
				require.Equal(t, i == tt.silent, silent, "check %d", i)
				if longest = now.Since(last); silent && c.after == clientcore.SilenceCheckInterval {
					require.LessOrEqual(t, longest+clientcore.SilenceCheckInterval, 2*time.Second,
						"a silent member is noticed within two seconds")
				}
				if silent {
					return
				}
			}
		})
	}
}
