package filegate

import (
	"bufio"
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
	"github.com/leased-project/leased/storagegate"
	"github.com/leased-project/leased/storagegate/gatetest"
)

// The tests start themselves as other processes; envChild says what to do there.
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
	case "stand still":
		childStandsStill()
	case "die":
		childDies()
	case "add":
		childAdds()
	}
	os.Exit(0)
}

// child prepares this program as another process that holds the token.
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

// inChild opens the gate that the parent means.
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
	dir string
}

// Crash kills a real process between check and commit.
func (s subject) Crash(t testing.TB, resource fencing.Resource, token fencing.Token, value string) {
	cmd := child(s.dir, "stand still", resource, token, envValue+"="+value)
	output, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	line, err := bufio.NewReader(output).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "standing still\n", line)
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
}

func childStandsStill() {
	gate, resource, token := inChild(osDisk{})
	must(gate.Do(context.Background(), resource, token, func(file *File) error {
		must(put(context.Background(), file, resource, os.Getenv(envValue)))
		fmt.Println("standing still")
		select {}
	}))
}

// unsynced spares the suite's thousands of writes the wait for the disk; what
// the waits are for is tested below.
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
			return subject{gatetest.Adapt(gate, put, get(gate)), dir}
		}
	})
}

// TestProcessesDoNotLoseUpdates lets real processes add to one file, each under
// a newer token than the one before.
func TestProcessesDoNotLoseUpdates(t *testing.T) {
	dir := t.TempDir()
	const children = 6
	outputs := make([]*strings.Builder, children)
	cmds := make([]*exec.Cmd, children)
	for i := range cmds {
		outputs[i] = &strings.Builder{}
		cmds[i] = child(dir, "add", "door", fencing.Token(i+1))
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
	content, err := os.ReadFile(filepath.Join(dir, "door"))
	require.NoError(t, err)
	require.Equal(t, want.String(), string(content))
	require.Contains(t, string(content), strings.Repeat(fmt.Sprintf("%d ", children), adds), "the newest is never refused")
}

const adds = 20

// childAdds adds its token to the file until it is refused, and says how often
// it could.
func childAdds() {
	gate, resource, token := inChild(osDisk{})
	ctx := context.Background()
	passed := 0
	err := gate.Enter(ctx, resource, token)
	for range adds {
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

func TestFileKeepsWhatIsNotReplaced(t *testing.T) {
	gate, err := New(t.TempDir(), fencing.Rule{})
	require.NoError(t, err)
	path := gate.Path("door")
	require.NoError(t, os.WriteFile(path, []byte("before the gate"), 0o640))
	require.NoError(t, gate.Do(t.Context(), "door", 1, func(file *File) error {
		content, err := file.Current()
		require.NoError(t, err)
		require.Equal(t, "before the gate", string(content))
		return nil
	}))
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "before the gate", string(content), "nothing written, nothing replaced")

	require.NoError(t, gate.Do(t.Context(), "door", 1, func(file *File) error {
		_, err := file.Write(nil)
		return err
	}))
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Zero(t, info.Size(), "an empty slice makes it empty")
	require.Equal(t, fs.FileMode(0o640), info.Mode().Perm(), "permissions stay")
}

func TestADamagedMarkStopsWrites(t *testing.T) {
	gate, err := New(t.TempDir(), fencing.Rule{})
	require.NoError(t, err)
	require.NoError(t, gate.Enter(t.Context(), "door", 5))
	for _, text := range []string{"", "5", "5\nwindow\n", "x\ndoor\n", "-1\ndoor\n", "9007199254740992\ndoor\n"} {
		require.NoError(t, os.WriteFile(gate.beside("door", ".mark"), []byte(text), 0o600))
		err := gate.Do(t.Context(), "door", 6, func(*File) error { return errors.New("must not run") })
		require.ErrorIs(t, err, ErrDamaged, "%q", text)
	}
	require.Equal(t, storagegate.Counts{Admitted: 1}, gate.Counts())
}

func TestNamesOfFiles(t *testing.T) {
	for resource, want := range map[fencing.Resource]string{
		"orders-42.json": "orders-42.json",
		"a/b":            "a%2fb",
		"A":              "%41",
		"..":             "%2e.",
		".leased":        "%2eleased",
		"100%":           "100%25",
		fencing.Resource(strings.Repeat("x", 200)): strings.Repeat("x", 200),
	} {
		require.Equal(t, want, escape(resource))
	}
	long := escape(fencing.Resource(strings.Repeat("x", 201)))
	require.Equal(t, 65, len(long))
	require.True(t, strings.HasPrefix(long, "~"), "which no escaped name begins with")
}
