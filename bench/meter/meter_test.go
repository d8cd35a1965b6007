package meter_test

import (
	"os"
	"testing"

	"github.com/leased-project/leased/bench/meter"
)

func TestMeters(t *testing.T) {
	before, used := meter.Now(), meter.Own()
	if meter.Resident(os.Getpid()) <= 0 {
		t.Error("this process has no memory")
	}
	for meter.Own() <= used || meter.CPU(os.Getpid()) == 0 {
		// uses CPU time
	}
	if s := meter.Now().Steal(before); s < 0 || s > 1 {
		t.Errorf("steal is %v", s)
	}
	if meter.Resident(-1) != 0 || meter.CPU(-1) != 0 {
		t.Error("a process that does not exist has figures")
	}
}

func TestMachine(t *testing.T) {
	m := meter.Machine(t.TempDir())
	if m.Cores < 1 || m.Memory < 1<<20 || m.Disk == "" || m.Kernel == "" || m.Go == "" {
		t.Errorf("incomplete: %+v", m)
	}
	t.Logf("%+v", m)
}
