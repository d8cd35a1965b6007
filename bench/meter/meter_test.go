package meter_test

import (
	"os"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/bench/meter"
)

func TestMeter(t *testing.T) {
	t.Parallel()
	m := meter.New(func() []int { return []int{os.Getpid()} })
	m.Begin()
	for start := meter.CPU(os.Getpid()); meter.CPU(os.Getpid()) == start; {
	}
	m.End()
	require.Positive(t, m.Usage().Client)
	require.Positive(t, m.Usage().Servers)
	require.GreaterOrEqual(t, m.Usage().Steal, 0.0)
	require.Less(t, m.Usage().Steal, 1.0)
}

func TestCPUOfNoProcess(t *testing.T) {
	t.Parallel()
	require.Positive(t, meter.CPU(os.Getpid()))
	require.Zero(t, meter.CPU(0), "a server that does not run")
	require.Zero(t, meter.CPU(1<<22+1), "a process that does not exist")
}

func TestMemory(t *testing.T) {
	t.Parallel()
	before := meter.Memory(os.Getpid())
	data := make([]byte, 64<<20)
	for i := 0; i < len(data); i += 4096 {
		data[i] = 1
	}
	require.Greater(t, meter.Memory(os.Getpid()), before+32<<20)
	runtime.KeepAlive(data)
	require.Zero(t, meter.Memory(1<<30), "a process that does not exist")
}
