package filegate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/storagegate"
	"github.com/leased-project/leased/storagegate/gatetest"
)

// The tests run this program again as child processes. envChild is the role of
// the child.
const (
	envChild = "FILEGATE_TEST_CHILD"
	envDir   = "FILEGATE_TEST_DIR"
	envValue = "FILEGATE_TEST_VALUE"
	envStep  = "FILEGATE_TEST_STEP"
)

func TestMain(m *testing.M) {
	switch os.Getenv(envChild) {
	case "":
		os.Exit(m.Run())
	case "pause":
		pausedChild()
	case "be killed":
		killedChild()
	case "append":
		appendingChild()
	}
	os.Exit(0)
}

// child returns a command that runs this program as a holder of the token.
func child(dir, role string, resource fencing.Resource, token fencing.Token, more ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(append(os.Environ(), envChild+"="+role, envDir+"="+dir), more...)
	cmd.Env = append(cmd.Env, fencing.Environ(resource, token)...)
	cmd.Stderr = os.Stderr
	return cmd
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// inChild opens the gate of the parent.
func inChild(d disk) (*Gate, fencing.Resource, fencing.Token) {
	resource, token, err := fencing.FromEnviron()
	must(err)
	gate, err := newGate(os.Getenv(envDir), fencing.Rule{}, d)
	must(err)
	return gate, resource, token
}

func put(_ context.Context, file *File, _ fencing.Resource, value string) error {
	_, err := io.WriteString(file, value)
	return err
}

func get(gate *Gate) func(context.Context, fencing.Resource) (string, error) {
	return func(_ context.Context, resource fencing.Resource) (string, error) {
		content, err := os.ReadFile(gate.Path(resource))
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return string(content), err
	}
}

type subject struct {
	gatetest.Pauser
	storagegate.Resetter
	dir string
}

// Crash kills a real process between check and commit.
func (s subject) Crash(t testing.TB, resource fencing.Resource, token fencing.Token, value string) {
	testserver.KillPaused(t, append(fencing.Environ(resource, token), envChild+"=pause", envDir+"="+s.dir,
		envValue+"="+value)...)
}

func pausedChild() {
	gate, resource, token := inChild(osDisk{})
	must(gate.Do(context.Background(), resource, token, func(file *File) error {
		must(put(context.Background(), file, resource, os.Getenv(envValue)))
		testserver.PauseForKill()
		return nil
	}))
}

// unsynced does not wait for the disk, which the suite does not need. Other tests
// check that the gate waits for it.
type unsynced struct{ osDisk }

func (u unsynced) create(path string) (handle, error) {
	f, err := u.osDisk.create(path)
	return unsyncedFile{f}, err
}

func (unsynced) syncDir(string) error { return nil }

type unsyncedFile struct{ handle }

func (unsyncedFile) Sync() error { return nil }

func TestGate(t *testing.T) {
	gatetest.Run(t, func(t *testing.T) gatetest.Opener {
		dir := filepath.Join(t.TempDir(), "files")
		return func(t testing.TB, rule fencing.Rule) gatetest.Subject {
			gate, err := newGate(dir, rule, unsynced{})
			require.NoError(t, err)
			return subject{gatetest.Adapt(gate, put, get(gate)), gate, dir}
		}
	})
}

// TestProcessesDoNotLoseUpdates runs several processes that append to one file,
// each with its own token.
func TestProcessesDoNotLoseUpdates(t *testing.T) {
	dir := t.TempDir()
	const children = 6
	outputs := make([]*strings.Builder, children)
	cmds := make([]*exec.Cmd, children)
	for i := range cmds {
		outputs[i] = &strings.Builder{}
		cmds[i] = child(dir, "append", "orders", fencing.Token(i+1))
		cmds[i].Stdout = outputs[i]
		require.NoError(t, cmds[i].Start())
	}
	var want strings.Builder
	for i, cmd := range cmds {
		require.NoError(t, cmd.Wait())
		passed, err := strconv.Atoi(outputs[i].String())
		require.NoError(t, err)
		want.WriteString(strings.Repeat(fmt.Sprintf("%d ", i+1), passed))
	}
	content, err := os.ReadFile(filepath.Join(dir, "orders"))
	require.NoError(t, err)
	require.Equal(t, want.String(), string(content))
	require.Contains(t, string(content), strings.Repeat(fmt.Sprintf("%d ", children), appends),
		"the newest token must not be refused")
}

const appends = 20

// appendingChild appends its token to the file until it is refused, and prints the
// number of writes.
func appendingChild() {
	gate, resource, token := inChild(osDisk{})
	ctx := context.Background()
	passed := 0
	err := gate.Enter(ctx, resource, token)
	for range appends {
		if err != nil {
			break
		}
		content, readErr := get(gate)(ctx, resource)
		must(readErr)
		err = gate.Do(ctx, resource, token, func(file *File) error {
			return put(ctx, file, resource, content+token.String()+" ")
		})
		if err == nil {
			passed++
		}
	}
	if err != nil && !errors.Is(err, fencing.ErrStale) {
		panic(err)
	}
	fmt.Print(passed)
}

func TestWriteWithoutDataKeepsTheFile(t *testing.T) {
	gate, err := New(t.TempDir(), fencing.Rule{})
	require.NoError(t, err)
	path := gate.Path("orders")
	require.NoError(t, os.WriteFile(path, []byte("before the gate"), 0o640))
	require.NoError(t, gate.Do(t.Context(), "orders", 1, func(file *File) error {
		content, err := file.Current()
		require.NoError(t, err)
		require.Equal(t, "before the gate", string(content))
		return nil
	}))
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "before the gate", string(content), "a write without data must not replace the file")

	require.NoError(t, gate.Do(t.Context(), "orders", 1, func(file *File) error {
		_, err := file.Write(nil)
		return err
	}))
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Zero(t, info.Size(), "an empty slice empties the file")
	require.Equal(t, fs.FileMode(0o640), info.Mode().Perm(), "permissions must not change")
}

// A full disk stays full otherwise: nothing else removes what a failed write has stored of a file that is not
// written again.
func TestFailedWriteLeavesNothing(t *testing.T) {
	gate, err := New(t.TempDir(), fencing.Rule{})
	require.NoError(t, err)
	full := errors.New("no space left on device")
	require.ErrorIs(t, gate.Do(t.Context(), "orders", 1, func(file *File) error {
		_, err := file.Write([]byte("half of the content"))
		require.NoError(t, err)
		return full
	}), full)
	left, err := filepath.Glob(gate.internal("orders", ".new"))
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestDamagedMarkRefusesWrites(t *testing.T) {
	gate, err := New(t.TempDir(), fencing.Rule{})
	require.NoError(t, err)
	require.NoError(t, gate.Enter(t.Context(), "orders", 5))
	for _, text := range []string{"", "5", "5\ninvoices\n", "x\norders\n", "-1\norders\n", "9007199254740992\norders\n"} {
		require.NoError(t, os.WriteFile(gate.internal("orders", ".mark"), []byte(text), 0o600))
		err := gate.Do(t.Context(), "orders", 6, func(*File) error { return errors.New("must not run") })
		require.ErrorIs(t, err, ErrDamaged, "%q", text)
	}
	require.Equal(t, storagegate.Counts{Admitted: 1}, gate.Counts())
}
