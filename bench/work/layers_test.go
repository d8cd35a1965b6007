package work

import (
	"testing"

	"github.com/google/pprof/profile"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/bench/results"
)

func TestSharesAddUpByLayer(t *testing.T) {
	taken := &profile.Profile{}
	for function, micros := range map[string]int64{"internal/runtime/syscall/linux.Syscall6": 500, "runtime.mallocgc": 500,
		"github.com/leased-project/leased/raftstore.(*committer).run": 600, "strings.Clone": 300, "": 100} {
		in := func(name string) *profile.Location {
			return &profile.Location{Line: []profile.Line{{Function: &profile.Function{Name: name}}}}
		}
		leaf, caller := in(function), in("main")
		if function == "" { // it is unknown
			leaf.Line = nil
		}
		taken.Sample = append(taken.Sample, &profile.Sample{Location: []*profile.Location{leaf, caller},
			Value: []int64{1, 1000 * micros}})
	}
	got, err := shares(taken)
	require.NoError(t, err)
	require.InDelta(t, 0.25, got[results.SystemShare], 1e-9)
	require.InDelta(t, 0.25, got[results.RuntimeShare], 1e-9)
	require.InDelta(t, 0.3, got[results.LeasedShare], 1e-9)
	require.InDelta(t, 0.2, got[results.OtherShare], 1e-9)
	_, err = shares(&profile.Profile{})
	require.Error(t, err)
}
