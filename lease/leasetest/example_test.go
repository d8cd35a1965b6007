package leasetest_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/lease/leasetest"
	"github.com/leased-project/leased/raftstore/memory"
)

// The test of an engine calls Run with a function that starts the engine.
func ExampleRun() {
	testEngine := func(t *testing.T) {
		leasetest.Run(t, func(t *testing.T) leasetest.Subject {
			backend, err := memory.New()
			if err != nil {
				t.Fatal(err)
			}
			return leasetest.Subject{Backend: func() engine.Backend { return backend }, Mode: engine.Correctness,
				TTL: 10 * time.Second, Clock: leasetest.NewClock(), FIFO: true}
		}, leasetest.InBubble())
	}
	_ = testEngine // in a test file: func TestConformance(t *testing.T)
}

// The time in suspend counts for a lease, although the monotonic clock stood still.
func ExampleClock_Suspend() {
	clock := leasetest.NewClock()
	before := clock.Now()
	clock.Suspend(time.Hour)
	fmt.Println(clock.Now().Since(before) >= time.Hour)
	// Output: true
}
