package main

import (
	"runtime/debug"
	"runtime/metrics"
	"testing"

	"github.com/stretchr/testify/require"
)

// A member has its own policy of garbage collection, unless the operator has set one.
func TestLimitGarbage(t *testing.T) {
	percent := func() uint64 {
		sample := []metrics.Sample{{Name: "/gc/gogc:percent"}}
		metrics.Read(sample)
		return sample[0].Value.Uint64()
	}
	defer debug.SetGCPercent(debug.SetGCPercent(77))
	for _, chosen := range []string{"GOGC", "GOMEMLIMIT"} {
		t.Setenv("GOGC", "")
		t.Setenv("GOMEMLIMIT", "")
		t.Setenv(chosen, "off")
		require.Nil(t, limitGarbage())
		require.Equal(t, uint64(77), percent())
	}
	t.Setenv("GOMEMLIMIT", "")
	require.Len(t, limitGarbage(), ballastBytes)
	require.Equal(t, uint64(garbagePercent), percent())
}
