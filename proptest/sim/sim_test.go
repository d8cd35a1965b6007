package sim

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/proptest/property"
)

var (
	only    = flag.Uint64("sim.seed", 0, "run only this seed, and write its whole history")
	profile = flag.String("sim.profile", "", "inject only faults of this profile")
	many    = flag.Int("sim.runs", 6, "number of seeds, multiplied by "+property.ScaleVariable)
)

// TestSeeds runs random plans: a few in a plain go test, many in make prop.
func TestSeeds(t *testing.T) {
	if *only != 0 {
		runOne(t, Random(*only, Profiles[*profile]...))
		return
	}
	defer debug.SetGCPercent(debug.SetGCPercent(800)) // most objects are short-lived
	first, runs := property.FirstSeed(), property.Budget(*many)
	var total [settings]property.Report
	var mu sync.Mutex
	var next atomic.Uint64
	var undecided atomic.Int64
	var group sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		group.Go(func() {
			for n := next.Add(1) - 1; n < uint64(runs) && !t.Failed(); n = next.Add(1) - 1 {
				plan := Random(first+n, Profiles[*profile]...)
				result := runSeed(t, plan, &undecided)
				mu.Lock()
				total[plan.Setting].Add(result)
				mu.Unlock()
			}
		})
	}
	group.Wait()
	for setting := range settings {
		r := &total[setting]
		r.Setting = setting.String()
		r.Seeds = []uint64{first, first + uint64(runs) - 1}
		t.Log(r)
		require.NoError(t, property.Publish(*r))
	}
	if n := undecided.Load(); n > 0 {
		t.Logf("the linearizability of %d histories is undecided", n)
	}
}

// TestSeedsThatFailed repeats seeds that failed once, here or in a soak.
func TestSeedsThatFailed(t *testing.T) {
	for seed, why := range map[uint64]string{
		70372: "a deposed leader that did not know it started an election and appended entries",
	} {
		require.Empty(t, Run(Random(seed)).Bad, why)
	}
}

// Two of every sampled runs are also checked for linearizability, with recorded
// operations per lock.
const (
	sampled  = 50
	recorded = 120
)

// runChecked runs a plan and checks the recorded operations for linearizability. A
// violation is drawn to page, unless that is nil.
func runChecked(plan Plan, operations int, page io.Writer, options ...Option) (result *Result, undecided bool) {
	result = Run(plan, append(options, WithHistory(operations))...)
	switch err := property.CheckLinearizable(result.History, 20*time.Second, page); {
	case errors.Is(err, property.ErrTimeout):
		return result, true
	case err != nil:
		result.Bad = append(result.Bad, err)
		result.Report.Violations = append(result.Report.Violations, err.Error())
	}
	return result, false
}

func runSeed(t *testing.T, plan Plan, undecided *atomic.Int64) property.Report {
	operations := 0
	if plan.Seed%sampled < 2 {
		operations = recorded
	}
	result, unknown := runChecked(plan, operations, nil)
	if unknown {
		undecided.Add(1)
	}
	if len(result.Bad) > 0 {
		where, _ := writeHistory(t, fmt.Sprintf("seed-%d", plan.Seed), plan)
		t.Errorf("%v\n%s\nfailed after %d runs", result.Bad[0], where+replayCommand(plan), plan.Seed-property.FirstSeed()+1)
	}
	return result.Report
}

// runOne runs a plan and writes its history. Everything that fails in runSeed fails here,
// too.
func runOne(t *testing.T, plan Plan) {
	where, result := writeHistory(t, fmt.Sprintf("seed-%d", plan.Seed), plan)
	t.Log(where)
	t.Log(result.Report)
	require.Empty(t, result.Bad)
}

// writeHistory runs a plan again and writes its events up to the first violation, or all,
// as text, and the last of them as a diagram. A linearizability violation has no single
// event; it gets a page of its own.
func writeHistory(t require.TestingT, name string, plan Plan) (where string, result *Result) {
	dir := filepath.Join(os.TempDir(), "leased-sim-"+name)
	require.NoError(t, os.MkdirAll(dir, 0o755))
	var page bytes.Buffer
	result, undecided := runChecked(plan, recorded, &page, WithEvents())
	events := result.Events
	var bad []*property.Violation
	var v *property.Violation
	if len(result.Bad) > 0 && errors.As(result.Bad[0], &v) {
		bad = append(bad, v)
		for i, e := range events {
			if e == v.Event {
				events = events[:i+1]
				break
			}
		}
	}
	text, err := os.Create(filepath.Join(dir, "history.txt"))
	require.NoError(t, err)
	defer text.Close()
	fmt.Fprintf(text, "%+v\n\n", plan)
	for _, e := range events {
		fmt.Fprintln(text, e)
	}
	for _, err := range result.Bad {
		fmt.Fprintln(text, "VIOLATION", err)
	}
	picture, err := os.Create(filepath.Join(dir, "history.html"))
	require.NoError(t, err)
	defer picture.Close()
	const drawn = 400
	require.NoError(t, property.Draw(picture, events[max(0, len(events)-drawn):], bad...))
	where = fmt.Sprintf("the history is in %s and %s", text.Name(), picture.Name())
	if undecided {
		where += "\nits linearizability is undecided"
	}
	if page.Len() > 0 {
		file := filepath.Join(dir, "linear.html")
		require.NoError(t, os.WriteFile(file, page.Bytes(), 0o644))
		where += "\nthe longest linearizable parts are in " + file
	}
	return where, result
}

// replayCommand returns the command that repeats a seed.
func replayCommand(plan Plan) string {
	command := fmt.Sprintf("go test ./proptest/sim -run 'TestSeeds$' -sim.seed=%d", plan.Seed)
	if *profile != "" {
		command += " -sim.profile=" + *profile
	}
	return "\nrepeat with: " + command
}

// The same plan produces the same history, to the last event.
func TestSeedsReplay(t *testing.T) {
	hashes := map[uint64]bool{}
	for seed := range uint64(6) {
		plan := Random(1000 + seed)
		plan.Length = 30 * time.Second
		first, second := Run(plan), Run(plan, WithEvents(), WithHistory(50))
		require.Equal(t, first.Hash, second.Hash, "seed %d", seed)
		require.Equal(t, first.Report, second.Report)
		hashes[first.Hash] = true
	}
	require.Len(t, hashes, 6, "different seeds produce different histories")
}

// A violation that only the linearizability checker finds is reproduced by running the
// seed alone. The storage here confirms a write whose value it loses, which violates no
// property of versions.
func TestLinearizabilityViolationsReplay(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	plan := contended(1, []FaultKind{PauseAtStep})
	plan.Flaws = Flaws{LosesValues: true}
	require.Empty(t, Run(plan).Bad, "the property checker reports nothing")
	result, _ := runChecked(plan, recorded, nil)
	require.ErrorIs(t, errors.Join(result.Bad...), property.ErrNotLinearizable)

	where, result := writeHistory(t, "linearizability", plan)
	require.ErrorIs(t, errors.Join(result.Bad...), property.ErrNotLinearizable)
	dir := filepath.Join(os.TempDir(), "leased-sim-linearizability")
	text, err := os.ReadFile(filepath.Join(dir, "history.txt"))
	require.NoError(t, err)
	require.Contains(t, string(text), "VIOLATION "+property.ErrNotLinearizable.Error())
	require.Contains(t, where, filepath.Join(dir, "linear.html"))
	require.FileExists(t, filepath.Join(dir, "linear.html"))
}
