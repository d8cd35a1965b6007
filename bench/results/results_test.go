package results_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/bench/results"
)

func TestWriteRead(t *testing.T) {
	t.Parallel()
	run := results.Run{
		Machine:  results.Machine{CPU: "x", Cores: 2, Memory: 1 << 30},
		Versions: map[string]string{"etcd": "3.7.3"},
		Started:  time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		Samples: []results.Sample{{Work: "W1", Target: "etcd", Params: map[string]int{"workers": 1}, Round: 1,
			Figures: map[string]float64{results.Rate: 1.5}, Steal: 0.1}},
	}
	path := filepath.Join(t.TempDir(), "results.json")
	require.NoError(t, run.Write(path))
	read, err := results.Read(path)
	require.NoError(t, err)
	require.Equal(t, run, read)
}
