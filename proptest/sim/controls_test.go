package sim

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestControls disables one safety measure of the simulated code at a time. Some seed must
// then violate the property that it protects, and must not violate it otherwise.
func TestControls(t *testing.T) {
	for _, c := range []struct {
		name     string
		flaws    Flaws
		kinds    []FaultKind
		violates string
	}{
		{"no Enter before the read", Flaws{NoEnter: true}, []FaultKind{PauseAtStep, DelayMessages}, "G2"},
		{"the gate writes after the check", Flaws{TornGate: true}, []FaultKind{PauseAtStep, DelayMessages}, "G1"},
		{"validity from after the reply", Flaws{LateValidity: true}, []FaultKind{CutClient}, "M2"},
		{"continues after a write of unknown outcome", Flaws{KeepsWriting: true}, []FaultKind{DelayMessages, LoseMessages},
			"G2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for seed := uint64(1); ; seed++ {
				require.Less(t, seed, uint64(100), "no seed violates %s: the checker does not notice", c.violates)
				plan := contended(seed, c.kinds)
				plan.Flaws = c.flaws
				if !violated(Run(plan), c.violates) {
					continue
				}
				t.Logf("seed %[2]d violates %[1]s", c.violates, seed)
				plan.Flaws = Flaws{}
				require.Empty(t, Run(plan).Bad, "seed %d violates it with the safety measure, too", seed)
				return
			}
		})
	}
}

// contended returns a plan in which many clients compete for two locks. The first lock has
// a lock-delay, the second has none.
func contended(seed uint64, kinds []FaultKind) Plan {
	p := Random(seed, kinds...)
	p.Setting, p.Redises, p.Nodes, p.Clients, p.Locks, p.TTL, p.Length = Correctness, 0, 3, 6, 2, time.Second,
		30*time.Second
	p.Think, p.Writes, p.Work, p.Latency, p.Jitter = 20*time.Millisecond, 10, 400*time.Millisecond, time.Millisecond,
		3*time.Millisecond
	for i := range p.Faults { // one after the other, each at least as long as a lease
		p.Faults[i].At = time.Duration(i) * 700 * time.Millisecond
		p.Faults[i].For = time.Second + p.Faults[i].For%(2*time.Second)
	}
	return p
}

func violated(r *Result, property string) bool {
	for _, err := range r.Bad {
		if strings.HasPrefix(err.Error(), property) {
			return true
		}
	}
	return false
}
