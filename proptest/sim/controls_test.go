package sim

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/lease"
)

// TestControls takes one counter-measure of the simulated world away at a time.
// Some seed must then break the promise that it is there for; with it, none of
// the seeds that were looked at does.
func TestControls(t *testing.T) {
	for _, c := range []struct {
		name   string
		flaws  Flaws
		mode   lease.Mode // any, if not set
		kinds  []What
		breaks string
	}{
		{"no Enter before the read", Flaws{NoEnter: true}, 0, []What{PauseAtStep, DelayMessages}, "G2"},
		{"the gate checks, and writes later", Flaws{TornGate: true}, 0, []What{PauseAtStep, DelayMessages}, "G1"},
		{"validity from after the reply", Flaws{LateValidity: true}, lease.Correctness, []What{CutClient, Isolate}, "M2"},
		{"goes on after a write of unknown outcome", Flaws{KeepsWriting: true}, 0, []What{DelayMessages, LoseMessages}, "G2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for seed := uint64(1); ; seed++ {
				require.Less(t, seed, uint64(300), "no seed breaks %s: the judge does not see it", c.breaks)
				plan := Random(seed, c.kinds...)
				if c.mode != 0 && plan.Mode != c.mode {
					continue
				}
				plan.Length = min(plan.Length, time.Minute)
				require.Empty(t, Run(plan).Bad, "seed %d breaks it with the counter-measure, too", seed)
				plan.Flaws = c.flaws
				if broken(Run(plan), c.breaks) {
					t.Logf("%s is broken by seed %d", c.breaks, seed)
					return
				}
			}
		})
	}
}

func broken(r *Result, promise string) bool {
	for _, err := range r.Bad {
		if strings.HasPrefix(err.Error(), promise) {
			return true
		}
	}
	return false
}
