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

// silent keeps go-redis from printing every connection that was cut.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

func init() {
	redis.SetLogger(silent{})
	debug.SetGCPercent(400) // scripts on miniredis make much garbage
}

// Everything may happen, as long as a majority of the servers keep their data:
// tokens keep their promise, and with them the gate. That two hold one lock at a
// time is not promised here; how often it happens is printed.
func TestEfficiencyUnderFaults(t *testing.T) {
	checks(t, 3, 16)
	total := property.Report{Setting: "virtual time, efficiency"}
	rapid.Check(t, func(t *rapid.T) {
		forgetTimers()
		history(t, &total, total.Setting, func(t *rapid.T, s *story) {
			size := rapid.SampledFrom([]int{3, 3, 5}).Draw(t, "nodes")
			ttl := rapid.SampledFrom([]time.Duration{time.Second, 4 * time.Second, 10 * time.Second}).Draw(t, "ttl")
			seed := rapid.Uint64().Draw(t, "seed")
			kinds := append(append([]string{}, redisFaults...), clientFaults...)
			faults := rapid.SliceOfN(faultOf(kinds, 12*time.Second), 4, 40).Draw(t, "faults")
			runFleet(s, size, engine.Policy{TTL: ttl}, seed, faults, rough, []float64{1, 1.02, 0.98, 1.5})
		})
	})
	publish(t, total)
}

// forgetTimers empties pools of the libraries: go-redis keeps timers in one, and
// a timer belongs to its bubble.
func forgetTimers() {
	runtime.GC() // what is in a pool outlives one collection
	runtime.GC()
}

// runFleet lets a crew work on Redis servers while faults happen.
func runFleet(s *story, size int, policy engine.Policy, seed uint64, faults []fault, h habits, rates []float64) {
	f, err := startFleet(s, size, seed)
	defer f.close()
	if err != nil {
		s.broken("start: %v", err)
		return
	}
	crew := &crew{story: s, storage: newRegisters(s), policy: policy, connect: f.connect}
	if err := crew.start(3, 1, h, rates, seed); err != nil {
		s.broken("start: %v", err)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	schedule(faults, func(one fault) {
		if slices.Contains(clientFaults, one.kind) {
			strikeClient(crew.processes[one.target%len(crew.processes)], one)
		} else {
			f.strike(ctx, one)
		}
	})
	crew.stop()
	crew.serve()
	crew.storage.found(resources)
}
