package sim

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestControls takes one counter-measure of the simulated world away at a time.
// Some seed must then break the promise that it is there for, and must not with
// it.
func TestControls(t *testing.T) {
	for _, c := range []struct {
		name   string
		flaws  Flaws
		kinds  []FaultKind
		breaks string
	}{
		{"no Enter before the read", Flaws{NoEnter: true}, []FaultKind{PauseAtStep, DelayMessages}, "G2"},
		{"the gate checks, and writes later", Flaws{TornGate: true}, []FaultKind{PauseAtStep, DelayMessages}, "G1"},
		{"validity from after the reply", Flaws{LateValidity: true}, []FaultKind{CutClient}, "M2"},
		{"goes on after a write of unknown outcome", Flaws{KeepsWriting: true}, []FaultKind{DelayMessages, LoseMessages}, "G2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for seed := uint64(1); ; seed++ {
				require.Less(t, seed, uint64(100), "no seed breaks %s: the judge does not see it", c.breaks)
				plan := crowd(seed, c.kinds)
				plan.Flaws = c.flaws
				if !broken(Run(plan), c.breaks) {
					continue
				}
				t.Logf("%s is broken by seed %d", c.breaks, seed)
				plan.Flaws = Flaws{}
				require.Empty(t, Run(plan).Bad, "seed %d breaks it with the counter-measure, too", seed)
				return
			}
		})
	}
}

// crowd is a plan in which many want the same locks, for long. The first lock has a
// lock-delay, the second has none.
func crowd(seed uint64, kinds []FaultKind) Plan {
	p := Random(seed, kinds...)
	p.Setting, p.Redises, p.Nodes, p.Clients, p.Locks, p.TTL, p.Length = Correctness, 0, 3, 6, 2, time.Second, 30*time.Second
	p.Think, p.Writes, p.Work, p.Latency, p.Jitter = 20*time.Millisecond, 10, 400*time.Millisecond, time.Millisecond, 3*time.Millisecond
	for i := range p.Faults { // one after the other, each as long as a lease or more
		p.Faults[i].At = time.Duration(i) * 700 * time.Millisecond
		p.Faults[i].For = time.Second + p.Faults[i].For%(2*time.Second)
	}
	return p
}

func broken(r *Result, promise string) bool {
	for _, err := range r.Bad {
		if strings.HasPrefix(err.Error(), promise) {
			return true
		}
	}
	return false
}
