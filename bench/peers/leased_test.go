package peers

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestUsedMemory(t *testing.T) {
	t.Parallel()
	info := "# Memory\r\nused_memory_dataset:100\r\nused_memory_overhead:20\r\nmem_clients_normal:7\r\n" +
		"used_memory_dataset_perc:1.5%\r\n"
	require.EqualValues(t, 100+20-7, usedMemory(info))
}

func TestOpenLeased(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	for _, kind := range leasedKinds("") {
		_, err := kind.Open([]string{"127.0.0.1:1"})(ctx)
		require.Error(t, err, "%s: nothing listens there", kind.Name)
	}
}
