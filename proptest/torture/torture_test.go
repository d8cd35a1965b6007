//go:build linux

package torture

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
)

// buildFlags are those that the program of the members is built with.
var buildFlags []string

// This binary is also the workers, with storages that no program has.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "worker" {
		if err := workOn(context.Background(), os.Stdin, os.Stdout, openSleepy); err != nil {
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

// programDir is the folder of the members' program once it is built.
var programDir string

var build = sync.OnceValues(func() (path string, err error) {
	if programDir, err = os.MkdirTemp("", "leased-torture-test-"); err != nil {
		return "", err
	}
	path = filepath.Join(programDir, "leased")
	out, err := exec.Command("go", append(append([]string{"build"}, buildFlags...), "-o", path, "../../cmd/leased")...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build the members: %w\n%s", err, out)
	}
	return path, nil
})

// program returns the path of the members' program, which is built once.
func program(t *testing.T) string {
	t.Helper()
	path, err := build()
	require.NoError(t, err)
	return path
}

// ungatedVariable tells a worker of a test to write past the gate.
const ungatedVariable = "LEASED_TORTURE_UNGATED"

// sleepy is a storage whose worker is stopped now and then, at the worst moment: after
// all checks, just before the write.
type sleepy struct {
	*database
	ungated bool
	writes  int
}

func openSleepy(s Spec) (Storage, error) {
	d, err := openDatabase(context.Background(), s.DSN)
	return &sleepy{database: d, ungated: os.Getenv(ungatedVariable) != ""}, err
}

func (s *sleepy) Write(ctx context.Context, w Write) error {
	if s.writes++; s.writes%8 == 0 {
		if err := doze(); err != nil {
			return err
		}
		ctx = context.WithoutCancel(ctx) // the time that it slept does not count
	}
	if !s.ungated {
		return s.database.Write(ctx, w)
	}
	return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error { return write(ctx, tx, w) })
}

// Enter of the one without a gate raises no mark.
func (s *sleepy) Enter(ctx context.Context, resource fencing.Resource, token fencing.Token) error {
	if s.ungated {
		return nil
	}
	return s.database.Enter(ctx, resource, token)
}

// doze stops this process for longer than a TTL. A child resumes it.
func doze() error {
	alarm := exec.Command("sh", "-c", fmt.Sprintf("sleep %.1f; kill -CONT %d", 2*leaseTTL.Seconds(), os.Getpid()))
	if err := alarm.Start(); err != nil {
		return err
	}
	if err := syscall.Kill(os.Getpid(), syscall.SIGSTOP); err != nil {
		return err
	}
	return alarm.Wait()
}

// sleep runs with workers of this binary, with other seeds until enough was seen.
func sleep(t *testing.T, seen func(*Result) bool) *Result {
	t.Helper()
	member := program(t)
	for seed := uint64(1); ; seed++ {
		var progress strings.Builder
		r, err := Run(t.Context(), Config{Duration: 10 * time.Second, Seed: seed, Workers: 6, Dir: t.TempDir(), Progress: &progress,
			Member: []string{member, "serve"}, Worker: []string{os.Args[0], "worker"}})
		require.NoError(t, err, "%s", &progress)
		t.Logf("%s%s", &progress, r)
		lines := strings.Split(strings.TrimSpace(progress.String()), "\n")
		require.Contains(t, lines[len(lines)-1], fmt.Sprintf("  %d operations  grants %d correctness %d efficiency %d switched  switches %d  stale %d  violations ",
			r.Operations, r.Modes["correctness"].Grants, r.Modes["efficiency"].Grants, r.Modes["switched"].Grants, r.Switches.Done, r.Stale),
			"the last line of the progress has the figures of the report")
		if seen(r) || seed == 5 {
			return r
		}
	}
}

// The negative control: the same workers, past the gate.
func TestWithoutAGateUpdatesAreLost(t *testing.T) {
	t.Setenv(ungatedVariable, "1")
	r := sleep(t, func(r *Result) bool { return len(r.Violations) > 0 })
	require.NotEmpty(t, r.Violations)
	require.Contains(t, strings.Join(r.Violations, "\n"), "G")
	var page strings.Builder
	require.NoError(t, r.Picture(&page))
	require.Contains(t, page.String(), "Broken: G")
	require.Contains(t, page.String(), "circle class=\"wrote bad\"")
}

func TestWithAGateNothingIsLost(t *testing.T) {
	r := sleep(t, func(r *Result) bool { return r.Stale > 0 || len(r.Violations) > 0 })
	require.Empty(t, r.Violations)
	require.Positive(t, r.Stale, "late writes were refused")
	require.NoError(t, r.Picture(io.Discard))
}

// Locks in efficiency mode need no leader: straight to Redis, and through the member
// that is left. `leased torture --scenario leaderless --duration 1m` takes longer.
func TestEfficiencyModeWithoutALeader(t *testing.T) {
	r, err := Run(t.Context(), Config{Scenario: Leaderless, Duration: 10 * time.Second, Seed: 1, Workers: 6, Dir: t.TempDir(),
		Member: []string{program(t), "serve"}, Worker: []string{os.Args[0], "worker"}})
	require.NoError(t, err)
	t.Log(r)
	require.Empty(t, r.Violations)
	require.Positive(t, r.Ways.Direct.Grants)
	require.Positive(t, r.Ways.Member.Grants)
}

// Nothing in a run removes its folder. If it is removed, the error says so.
func TestAFolderThatWasRemovedIsSaidToBe(t *testing.T) {
	p := process{name: "worker 1", args: []string{"true"}, log: filepath.Join(t.TempDir(), "removed", "worker-1.log")}
	require.ErrorContains(t, p.start(), "removed by somebody else")
}

func TestConfig(t *testing.T) {
	good := Config{Duration: time.Second, Member: []string{"a"}, Worker: []string{"b"}, Dir: "c"}
	require.NoError(t, good.validate())
	require.Equal(t, DefaultWorkers, good.Workers)
	for _, change := range []func(*Config){
		func(c *Config) { c.Duration = 0 },
		func(c *Config) { c.Workers = 1 },
		func(c *Config) { c.Member = nil },
		func(c *Config) { c.Scenario = "unknown" },
		func(c *Config) { c.Scenario, c.Switches = Emptied, 1 },
	} {
		c := good
		change(&c)
		_, err := Run(t.Context(), c)
		require.Error(t, err)
	}
}
