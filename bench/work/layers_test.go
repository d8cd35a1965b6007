package work

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/bench/results"
)

func TestSharesAddUpByLayer(t *testing.T) {
	const text = `File: leased
Type: cpu
Duration: 10s, Total samples = 2s (20%)
      flat  flat%   sum%        cum   cum%
     0.50s 25.00% 25.00%      0.50s 25.00%  internal/runtime/syscall/linux.Syscall6
     500ms 25.00% 50.00%      0.50s 25.00%  runtime.mallocgc
     0.60s 30.00% 80.00%      0.60s 30.00%  github.com/leased-project/leased/raftstore.(*committer).run (inline)
     0.40s 20.00%   100%      0.40s 20.00%  strings.Clone
         0     0%   100%      0.40s 20.00%  main.main
`
	got, err := shares([]byte(text))
	require.NoError(t, err)
	require.InDelta(t, 0.25, got[results.SystemShare], 1e-9)
	require.InDelta(t, 0.25, got[results.RuntimeShare], 1e-9)
	require.InDelta(t, 0.3, got[results.LeasedShare], 1e-9)
	require.InDelta(t, 0.2, got[results.OtherShare], 1e-9)
	_, err = shares([]byte("no table"))
	require.Error(t, err)
}
