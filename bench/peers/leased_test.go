package peers

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestUsedMemory(t *testing.T) {
	t.Parallel()
	info := "# Memory\r\nused_memory_dataset:100\r\nused_memory_overhead:20\r\nmem_clients_normal:7\r\n" +
		"used_memory_dataset_perc:1.5%\r\n"
	require.EqualValues(t, 100+20-7, usedMemory(info))
}

func TestTargetOf(t *testing.T) {
	t.Parallel()
	for _, name := range []string{Correctness, JSON, Direct, Member} {
		require.Equal(t, name, targetOf(name, []string{"127.0.0.1:1"}).Name())
	}
}
