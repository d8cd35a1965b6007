package virtual

import (
	"context"
	"runtime"
	"runtime/debug"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/proptest/property"
)

// silent keeps go-redis from logging every closed connection.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

func init() {
	redis.SetLogger(silent{})
	debug.SetGCPercent(400) // scripts on miniredis allocate much
}

// As long as a quorum of the servers keeps its data, no fault violates a property of
// tokens or of the gate. Overlapping holders are not excluded; their number is printed.
func TestEfficiencyUnderFaults(t *testing.T) {
	checks(t, 3, 10)
	total := property.Report{Setting: "virtual time, efficiency"}
	rapid.Check(t, func(t *rapid.T) {
		forgetTimers()
		runHistory(t, &total, total.Setting, func(t *rapid.T, s *history) {
			size := rapid.SampledFrom([]int{3, 3, 5}).Draw(t, "nodes")
			ttl := rapid.SampledFrom([]time.Duration{time.Second, 4 * time.Second, 10 * time.Second}).Draw(t, "ttl")
			seed := rapid.Uint64().Draw(t, "seed")
			kinds := append(append([]string{}, redisFaults...), clientFaults...)
			faults := rapid.SliceOfN(faultOf(kinds, 12*time.Second), 4, 40).Draw(t, "faults")
			runFleet(s, size, engine.Policy{TTL: ttl}, seed, faults, careless, []float64{1, 1.02, 0.98, 1.5})
		})
	})
	publish(t, total)
}

// forgetTimers empties sync.Pools: go-redis keeps timers in one, and a timer belongs to its
// bubble.
func forgetTimers() {
	runtime.GC() // a pool survives one collection
	runtime.GC()
}

// runFleet runs a workload on Redis servers under faults.
func runFleet(s *history, size int, policy engine.Policy, seed uint64, faults []fault, h behavior, rates []float64) {
	f, err := startFleet(s, size, seed)
	defer f.close()
	if err != nil {
		s.broken("start: %v", err)
		return
	}
	workload := &workload{history: s, storage: newRegisters(s), policy: policy, connect: f.connect}
	if err := workload.start(3, 1, h, rates, seed); err != nil {
		s.broken("start: %v", err)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	schedule(faults, func(one fault) {
		if slices.Contains(clientFaults, one.kind) {
			injectClient(workload.processes[one.target%len(workload.processes)], one)
		} else {
			f.inject(ctx, one)
		}
	})
	workload.stop()
	workload.serve()
	workload.storage.found(resources)
}
