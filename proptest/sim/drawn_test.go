package sim

import (
	"flag"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/leased-project/leased/proptest/property"
)

// drawn draws a plan fault by fault, so that rapid shrinks a failure to few processes and
// few, early, short faults. The latency is constant, except for faults.
func drawn(t *rapid.T) Plan {
	p := Plan{TTL: time.Second, Think: 50 * time.Millisecond, Latency: time.Millisecond, Length: 20 * time.Second}
	p.Setting = rapid.SampledFrom([]Setting{Correctness, Standalone, Service}).Draw(t, "setting")
	if p.Setting == Service {
		p.Late = millis(t, "first fleet", 10_000)
		p.Redises = rapid.IntRange(3, 5).Draw(t, "Redis servers")
	}
	p.Nodes = rapid.SampledFrom([]int{1, 3, 5}).Draw(t, "nodes")
	p.Clients = rapid.IntRange(2, 4).Draw(t, "clients")
	p.Locks = rapid.IntRange(1, 3).Draw(t, "locks")
	p.Outsider = p.Setting != Correctness && (p.Setting == Standalone || p.Locks > 1) && rapid.Bool().Draw(t, "outsider")
	p.Writes = rapid.IntRange(1, 10).Draw(t, "writes")
	p.Work = millis(t, "work", 400)
	p.Seed = rapid.Uint64Range(1, 8).Draw(t, "client seed")
	fault := rapid.Custom(func(t *rapid.T) Fault {
		return Fault{Kind: FaultKind(rapid.IntRange(0, int(faultKinds)-1).Draw(t, "kind")), At: millis(t, "at", 20_000),
			Target: rapid.IntRange(0, 8).Draw(t, "target"), Other: rapid.IntRange(0, 8).Draw(t, "other"),
			For: millis(t, "for", 5000), Size: rapid.IntRange(0, 2000).Draw(t, "size"),
			Step: Step(rapid.IntRange(0, int(steps)-1).Draw(t, "step"))}
	})
	// The gate protects against a late holder while another one is between its read and
	// its write. Two such pauses rarely coincide by chance.
	late := rapid.Custom(func(t *rapid.T) Fault {
		return Fault{Kind: PauseAtStep, At: millis(t, "at", 20_000), Target: rapid.IntRange(0, 8).Draw(t, "target"),
			For: p.TTL + millis(t, "for", 4000), Step: rapid.SampledFrom([]Step{AboutToWrite, AboutToCheck}).Draw(t, "step")}
	})
	p.Faults = rapid.SliceOfN(rapid.OneOf(fault, fault, late), 0, 30).Draw(t, "faults")
	return p
}

func millis(t *rapid.T, label string, most int) time.Duration {
	return time.Duration(rapid.IntRange(0, most).Draw(t, label)) * time.Millisecond
}

// TestDrawnFaults runs drawn plans. A failure is shrunk, and its history written.
func TestDrawnFaults(t *testing.T) {
	total := property.Report{Setting: "simulator, drawn faults"}
	if !property.Full() && flag.Lookup("rapid.checks").Value.String() == "100" {
		require.NoError(t, flag.Set("rapid.checks", "25")) // a plain go test
	}
	rapid.Check(t, func(t *rapid.T) {
		plan := drawn(t)
		result := Run(plan)
		total.Add(result.Report)
		if len(result.Bad) == 0 {
			return
		}
		t.Logf("%d nodes, %d clients, %d locks, %s", plan.Nodes, plan.Clients, plan.Locks, plan.Setting)
		for _, f := range plan.Faults {
			t.Logf("fault: %s", f)
		}
		where, _ := writeHistory(t, "drawn", plan)
		t.Fatalf("%v\n%s", result.Bad[0], where)
	})
	total.Seeds = nil
	require.NoError(t, property.Publish(total))
}
