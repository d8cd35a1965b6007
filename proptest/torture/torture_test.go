//go:build linux

package torture

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/testserver"
)

// buildFlags are the build flags of the members.
var buildFlags []string

// TestMain also runs this binary as a worker, with a storage for tests.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "worker" {
		if err := workOn(context.Background(), os.Stdin, os.Stdout, openPausing); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	code := m.Run()
	if programDir != "" {
		_ = os.RemoveAll(programDir)
	}
	os.Exit(code)
}

// programDir is the folder of the built program, or "".
var programDir string

var build = sync.OnceValues(func() (path string, err error) {
	if programDir, err = os.MkdirTemp("", "leased-torture-test-"); err != nil {
		return "", err
	}
	path = filepath.Join(programDir, "leased")
	out, err := exec.Command("go", append(append([]string{"build"}, buildFlags...), "-o", path,
		"../../cmd/leased")...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build the members: %w\n%s", err, out)
	}
	return path, nil
})

// program builds the program of the members once and returns its path.
func program(t *testing.T) string {
	t.Helper()
	path, err := build()
	require.NoError(t, err)
	return path
}

// pausing is a storage that sometimes pauses its worker at the worst moment: after all
// checks, just before the write.
type pausing struct {
	*database
	ungated bool
	writes  int
}

func openPausing(s Spec) (Storage, error) {
	d, err := openDatabase(context.Background(), s.DSN)
	return &pausing{database: d, ungated: len(os.Args) > 2 && os.Args[2] == "ungated"}, err
}

func (s *pausing) Write(ctx context.Context, w Write) error {
	if s.writes++; s.writes%8 == 0 {
		if err := pauseSelf(); err != nil {
			return err
		}
		ctx = context.WithoutCancel(ctx) // the pause must not consume the timeout
	}
	if !s.ungated {
		return s.database.Write(ctx, w)
	}
	return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error { return write(ctx, tx, w) })
}

// Enter raises no mark without a gate.
func (s *pausing) Enter(ctx context.Context, resource fencing.Resource, token fencing.Token) error {
	if s.ungated {
		return nil
	}
	return s.database.Enter(ctx, resource, token)
}

// pauseSelf pauses this process for longer than a TTL. A child resumes it, twice, since the nemesis may pause
// this process before it pauses itself.
func pauseSelf() error {
	resumer := exec.Command("sh", "-c", fmt.Sprintf("sleep %.1f; kill -CONT %[2]d; sleep 1; kill -CONT %[2]d",
		2*leaseTTL.Seconds(), os.Getpid()))
	if err := resumer.Start(); err != nil {
		return err
	}
	if err := syscall.Kill(os.Getpid(), syscall.SIGSTOP); err != nil {
		return err
	}
	return resumer.Wait()
}

// runUntil runs with workers of this binary, with new seeds until enough was seen.
func runUntil(t *testing.T, seen func(*Result) bool, worker ...string) *Result {
	t.Helper()
	member := program(t)
	for seed := uint64(1); ; seed++ {
		var progress strings.Builder
		r, err := Run(t.Context(), Config{Duration: 10 * time.Second, Seed: seed, Workers: 6, Dir: t.TempDir(),
			Progress: &progress,
			Leased:   member, Worker: append([]string{os.Args[0], "worker"}, worker...)})
		require.NoError(t, err, "%s", &progress)
		t.Logf("%s%s", &progress, r)
		lines := strings.Split(strings.TrimSpace(progress.String()), "\n")
		require.Contains(t, lines[len(lines)-1],
			fmt.Sprintf("  %d operations  grants %d correctness %d efficiency %d switched  switches %d  stale %d  violations ",
				r.Operations, r.Modes["correctness"].Grants, r.Modes["efficiency"].Grants, r.Modes["switched"].Grants,
				r.Switches.Done, r.Stale),
			"the last progress line must have the figures of the report")
		if seen(r) || seed == 5 {
			return r
		}
	}
}

// The negative control: the same workers bypass the gate.
func TestUpdatesAreLostWithoutAGate(t *testing.T) {
	t.Parallel()
	r := runUntil(t, func(r *Result) bool { return len(r.Violations) > 0 }, "ungated")
	require.NotEmpty(t, r.Violations)
	require.Contains(t, strings.Join(r.Violations, "\n"), "G")
	var page strings.Builder
	require.NoError(t, r.Picture(&page))
	require.Contains(t, page.String(), "Violated: G")
}

func TestNoUpdateIsLostWithAGate(t *testing.T) {
	t.Parallel()
	r := runUntil(t, func(r *Result) bool { return r.Stale > 0 || len(r.Violations) > 0 })
	require.Empty(t, r.Violations)
	require.Positive(t, r.Stale, "late writes were refused")
	require.NoError(t, r.Picture(io.Discard))
}

// Locks in efficiency mode are granted without a leader, directly and through the last
// member. `leased-torture --scenario leaderless --duration 1m` is a longer run.
func TestEfficiencyModeNeedsNoLeader(t *testing.T) {
	t.Parallel()
	const duration = 20 * time.Second // longer than gapLimit: a route may need that long for its first grant
	r, err := Run(t.Context(), Config{Scenario: Leaderless, Duration: duration, Seed: 1, Workers: 6,
		Dir:    t.TempDir(),
		Leased: program(t), Worker: []string{os.Args[0], "worker"}})
	require.NoError(t, err)
	t.Log(r)
	require.Empty(t, r.Violations)
	require.Positive(t, r.Routes.Direct.Grants)
	require.Positive(t, r.Routes.Member.Grants)
}

// Tokens of locks in PostgreSQL stay unique and keep growing when it is killed and fails over to a
// standby that missed grants. `leased-torture --scenario postgres --duration 1m` is a longer run.
func TestLocksInPostgres(t *testing.T) {
	t.Parallel()
	r, err := Run(t.Context(), Config{Scenario: Postgres, Duration: 10 * time.Second, Seed: 1, Workers: 6,
		Dir:    t.TempDir(),
		Leased: "none", Worker: []string{os.Args[0], "worker"}})
	require.NoError(t, err)
	t.Log(r)
	require.Empty(t, r.Violations)
	require.Equal(t, 1, r.Faults["failover"])
	require.Positive(t, r.Modes["PostgreSQL"].Grants)
}

// Workers in Python and TypeScript write beside workers in Go, and all are paused and killed. On a busy machine
// those of a language may be killed each time before their first write, so there are several runs then.
// `leased-torture --worker ...` is a longer run.
func TestWorkersInOtherLanguages(t *testing.T) {
	t.Setenv("PYTHONPATH", "../../sdk/python/src")
	require.NoError(t, testserver.BuildTypeScript("../../sdk/typescript"))
	writes := make([]int, 3) // of the workers in Go, Python and TypeScript
	for seed := uint64(1); seed <= 5 && slices.Contains(writes, 0); seed++ {
		r, err := Run(t.Context(), Config{Duration: 15 * time.Second, Seed: seed, Workers: 6, Dir: t.TempDir(),
			Leased: program(t), Worker: []string{os.Args[0], "worker"},
			Others: [][]string{{"/usr/bin/python3", "../../sdk/python/tests/torture_worker.py"},
				{"node", "../../sdk/typescript/test/torture-worker.js"}}})
		require.NoError(t, err)
		t.Log(r, r.Acknowledged)
		require.Empty(t, r.Violations)
		for i := range writes {
			writes[i] += r.Acknowledged[fmt.Sprint("worker ", i+1)] + r.Acknowledged[fmt.Sprint("worker ", i+4)]
		}
	}
	require.NotContains(t, writes, 0)
}

// The error of a run whose folder was removed says so.
func TestRemovedFolderIsReported(t *testing.T) {
	p := testserver.Process{Name: "worker 1", Args: []string{"true"},
		Log: filepath.Join(t.TempDir(), "removed", "worker-1.log")}
	require.ErrorContains(t, p.Start(), "removed by another process")
}

func TestConfig(t *testing.T) {
	good := Config{Duration: time.Second, Leased: "a", Worker: []string{"b"}, Dir: "c"}
	require.NoError(t, good.validate())
	require.Equal(t, DefaultWorkers, good.Workers)
	for _, change := range []func(*Config){
		func(c *Config) { c.Duration = 0 },
		func(c *Config) { c.Workers = 1 },
		func(c *Config) { c.Leased = "" },
		func(c *Config) { c.Scenario = "unknown" },
		func(c *Config) { c.Scenario, c.Switches = Emptied, 1 },
	} {
		c := good
		change(&c)
		_, err := Run(t.Context(), c)
		require.Error(t, err)
	}
}
