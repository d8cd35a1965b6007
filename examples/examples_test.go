package examples

import (
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/storagegate/boltgate"
	"github.com/leased-project/leased/storagegate/filegate"
	"github.com/leased-project/leased/storagegate/memgate"
	"github.com/leased-project/leased/storagegate/objectgate"
	"github.com/leased-project/leased/storagegate/redisgate"
	"github.com/leased-project/leased/storagegate/sqlgate"
	"github.com/leased-project/leased/storagegate/sqlgate/pgxgate"
)

// Every gate can be bound to a lease, without naming the type of its transactions.
func _(l *lease.Lease, bolt *boltgate.Gate, file *filegate.Gate, memory *memgate.Gate[int], object *objectgate.Gate,
	redis *redisgate.Gate, sql *sqlgate.Gate, pgx *pgxgate.Gate) []any {
	return []any{lease.Gate(l, bolt), lease.Gate(l, file), lease.Gate(l, memory), lease.Gate(l, object),
		lease.Gate(l, redis), lease.Gate(l, sql), lease.Gate(l, pgx)}
}

// No gate is missing above: a package that makes a gate of storagegate.NewBase is imported here.
func TestEveryGateCanBeBound(t *testing.T) {
	this, err := os.ReadFile("examples_test.go")
	require.NoError(t, err)
	found := 0
	require.NoError(t, filepath.WalkDir("../storagegate", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		if strings.Contains(string(source), "= storagegate.NewBase(") {
			found++
			require.Contains(t, string(this), `leased/`+filepath.ToSlash(filepath.Dir(path)[len("../"):])+`"`)
		}
		return err
	}))
	require.Equal(t, 7, found)
}

// shown finds the examples in the README: a command line and its output.
var shown = regexp.MustCompile("(?m)^```(?:console|text)\n\\$ (go run \\./examples/\\w+)\n((?s:.*?))```$")

// TestClient runs the program of the README against the service that `make run` starts.
func TestClient(t *testing.T) {
	program, err := os.ReadFile("client/main.go")
	require.NoError(t, err)
	require.Contains(t, string(program), devAddress)
	require.Equal(t, "correctness mode, the balance is 50\n", runProgram(t, string(program)))
}

// devAddress is the API address of `make run`.
const devAddress = "127.0.0.1:7420"

// runProgram runs a program with a service of its own and returns its output.
func runProgram(t *testing.T, program string) string {
	t.Helper()
	program = strings.ReplaceAll(program, devAddress, startService(t))
	file := filepath.Join(t.TempDir(), "main.go")
	require.NoError(t, os.WriteFile(file, []byte(program), 0o600))
	out, err := exec.Command("go", "run", file).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return string(out)
}

// startService runs the command of `make run` at free addresses, and returns the
// address of its API.
func startService(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "leased")
	out, err := exec.Command("go", "build", "-o", binary, "../cmd/leased").CombinedOutput()
	require.NoError(t, err, "%s", out)
	api, raft := testserver.FreeAddr(t), testserver.FreeAddr(t)
	service := exec.Command(binary, "dev", "--data", filepath.Join(t.TempDir(), "data"), "--listen", api, "--raft-listen",
		raft)
	var log strings.Builder
	service.Stderr = &log
	stdout, err := service.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, service.Start())
	t.Cleanup(func() {
		require.NoError(t, service.Process.Signal(os.Interrupt))
		_, _ = io.Copy(io.Discard, stdout)
		_ = service.Wait()
	})
	_, err = stdout.Read(make([]byte, 1)) // it prints its first line when it is ready
	require.NoError(t, err, "%s", &log)
	return api
}

// TestExamplesPrintWhatTheReadmeShows runs every example of the README and compares its
// output.
func TestExamplesPrintWhatTheReadmeShows(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	require.NoError(t, err)
	examples := shown.FindAllStringSubmatch(string(readme), -1)
	require.GreaterOrEqual(t, len(examples), 3, "the README shows election, semaphore and set")
	for _, example := range examples {
		command, want := example[1], example[2]
		t.Run(strings.TrimPrefix(command, "go run ./examples/"), func(t *testing.T) {
			cmd := exec.Command("go", strings.Fields(command)[1:]...)
			cmd.Dir = ".."
			var stderr strings.Builder
			cmd.Stderr = &stderr
			out, err := cmd.Output()
			require.NoError(t, err, "%s", stderr.String())
			require.Equal(t, want, string(out))
		})
	}
}
