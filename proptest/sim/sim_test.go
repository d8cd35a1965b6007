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

	"github.com/leased-project/leased/proptest/linear"
	"github.com/leased-project/leased/proptest/property"
	"github.com/leased-project/leased/proptest/timeline"
)

var (
	only    = flag.Uint64("sim.seed", 0, "run this seed alone, and tell its whole story")
	profile = flag.String("sim.profile", "", "run only faults of this profile")
	many    = flag.Int("sim.runs", 6, "how many seeds to run, before they are scaled by "+property.ScaleVariable)
)

// TestSeeds runs random plans. A plain go test makes a few; make prop many.
func TestSeeds(t *testing.T) {
	if *only != 0 {
		one(t, Random(*only, Profiles[*profile]...))
		return
	}
	defer debug.SetGCPercent(debug.SetGCPercent(800)) // little lives long here
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
		t.Logf("%d histories were too hard for the checker of linearizability", n)
	}
}

// TestSeedsThatFailed runs again what has failed once, here or in a soak.
func TestSeedsThatFailed(t *testing.T) {
	for seed, why := range map[uint64]string{
		70372: "a leader that did not know it was deposed stood for election, and went on to append",
	} {
		require.Empty(t, Run(Random(seed)).Bad, why)
	}
}

// sampled is how many runs there are to one whose history is checked for
// linearizability, too, and recorded how many operations on a lock are.
const (
	sampled  = 50
	recorded = 120
)

// judged runs a plan with some operations on each lock recorded, and adds the
// second opinion on them to what is broken. If that is what is broken, it is
// drawn to page, unless that is nil.
func judged(plan Plan, operations int, page io.Writer, options ...Option) (result *Result, undecided bool) {
	result = Run(plan, append(options, WithHistory(operations))...)
	switch err := linear.Check(result.History, 20*time.Second, page); {
	case errors.Is(err, linear.ErrTimeout):
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
	result, unknown := judged(plan, operations, nil)
	if unknown {
		undecided.Add(1)
	}
	if len(result.Bad) > 0 {
		told, _ := story(t, fmt.Sprintf("seed-%d", plan.Seed), plan)
		t.Errorf("%v\n%s\nfailed after %d runs", result.Bad[0], told+again(plan), plan.Seed-property.FirstSeed()+1)
	}
	return result.Report
}

// one runs a plan and leaves its story. Whatever runSeed may have found fails here,
// too.
func one(t *testing.T, plan Plan) {
	told, result := story(t, fmt.Sprintf("seed-%d", plan.Seed), plan)
	t.Log(told)
	t.Log(result.Report)
	require.Empty(t, result.Bad)
}

// story runs a plan again, since that gives the same, and writes down all that
// happens up to the first broken promise, or to the end: as a text, and the end
// of it as a picture. FaultKind only the second opinion finds has no one event that
// breaks it, and a page of its own.
func story(t require.TestingT, name string, plan Plan) (told string, result *Result) {
	dir := filepath.Join(os.TempDir(), "leased-sim-"+name)
	require.NoError(t, os.MkdirAll(dir, 0o755))
	var page bytes.Buffer
	result, undecided := judged(plan, recorded, &page, WithEvents())
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
	text, err := os.Create(filepath.Join(dir, "story.txt"))
	require.NoError(t, err)
	defer text.Close()
	fmt.Fprintf(text, "%+v\n\n", plan)
	for _, e := range events {
		fmt.Fprintln(text, e)
	}
	for _, err := range result.Bad {
		fmt.Fprintln(text, "BROKEN", err)
	}
	picture, err := os.Create(filepath.Join(dir, "story.html"))
	require.NoError(t, err)
	defer picture.Close()
	const drawn = 400
	require.NoError(t, timeline.Write(picture, fmt.Sprintf("simulator, %s", name), events[max(0, len(events)-drawn):], bad...))
	told = fmt.Sprintf("the story is in %s and %s", text.Name(), picture.Name())
	if undecided {
		told += "\nthe history was too hard for the checker of linearizability"
	}
	if page.Len() > 0 {
		file := filepath.Join(dir, "linear.html")
		require.NoError(t, os.WriteFile(file, page.Bytes(), 0o644))
		told += "\nwhat clients saw, as far as it can be explained, is in " + file
	}
	return told, result
}

// again is how to see a seed again.
func again(plan Plan) string {
	command := fmt.Sprintf("go test ./proptest/sim -run 'TestSeeds$' -sim.seed=%d", plan.Seed)
	if *profile != "" {
		command += " -sim.profile=" + *profile
	}
	return "\nthe same again: " + command
}

// TestASeedReplays: the same plan gives the same history, to the last event.
func TestASeedReplays(t *testing.T) {
	hashes := map[uint64]bool{}
	for seed := range uint64(6) {
		plan := Random(1000 + seed)
		plan.Length = 30 * time.Second
		first, second := Run(plan), Run(plan, WithEvents(), WithHistory(50))
		require.Equal(t, first.Hash, second.Hash, "seed %d", seed)
		require.Equal(t, first.Report, second.Report)
		hashes[first.Hash] = true
	}
	require.Len(t, hashes, 6, "other seeds give other histories")
}

// FaultKind only the checker of linearizability can see is found again by whoever
// runs the seed alone, and is in its story. The storage here counts a write whose
// value it loses, so that no promise that rests on versions is broken.
func TestTheSecondOpinionIsFoundAgain(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	plan := crowd(1, []FaultKind{PauseAtStep})
	plan.Flaws = Flaws{LosesValues: true}
	require.Empty(t, Run(plan).Bad, "the judge sees nothing")
	result, _ := judged(plan, recorded, nil)
	require.ErrorIs(t, errors.Join(result.Bad...), linear.ErrNotLinearizable)

	told, result := story(t, "second-opinion", plan)
	require.ErrorIs(t, errors.Join(result.Bad...), linear.ErrNotLinearizable)
	dir := filepath.Join(os.TempDir(), "leased-sim-second-opinion")
	text, err := os.ReadFile(filepath.Join(dir, "story.txt"))
	require.NoError(t, err)
	require.Contains(t, string(text), "BROKEN "+linear.ErrNotLinearizable.Error())
	require.Contains(t, told, filepath.Join(dir, "linear.html"))
	require.FileExists(t, filepath.Join(dir, "linear.html"))
}
