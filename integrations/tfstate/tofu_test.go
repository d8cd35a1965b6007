// Package tfstate runs OpenTofu against `leased gate tfstate`. `make tofu-test` builds both
// and sets TOFU and TEST_BINARY to their paths.
package tfstate

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/internal/testserver"
)

const configuration = `
terraform {
  backend "http" {
    address        = "URL"
    lock_address   = "URL"
    unlock_address = "URL"
  }
}
variable "value" {}
variable "script" { default = "true" }
resource "terraform_data" "it" {
  input = var.value
  provisioner "local-exec" { command = var.script }
}
`

// gate starts a service and a gate, and returns the URL of a state.
func gate(t *testing.T) string {
	t.Helper()
	service, err := testserver.StartService()
	require.NoError(t, err)
	t.Cleanup(service.Stop)
	c := exec.Command(os.Getenv("TEST_BINARY"), "gate", "tfstate", "--listen=127.0.0.1:0", "--endpoint="+service.Addr,
		"--files="+t.TempDir())
	c.Stderr = os.Stderr
	stdout, err := c.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())
	t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	line, err := bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err)
	return strings.Fields(line)[3] + "/prod"
}

// workplace is a folder with an initialized configuration.
type workplace struct {
	t   *testing.T
	dir string
}

func newWorkplace(t *testing.T, url string) workplace {
	t.Helper()
	w := workplace{t, t.TempDir()}
	require.NoError(t, os.WriteFile(filepath.Join(w.dir, "main.tf"), []byte(strings.ReplaceAll(configuration, "URL", url)),
		0o600))
	output, err := w.tofu("init").CombinedOutput()
	require.NoError(t, err, string(output))
	return w
}

func (w workplace) tofu(args ...string) *exec.Cmd {
	c := exec.CommandContext(testserver.Context(w.t), os.Getenv("TOFU"), args...)
	c.Dir = w.dir
	c.Env = append(os.Environ(), "TF_IN_AUTOMATION=1", "TF_CLI_CONFIG_FILE=/dev/null", "CHECKPOINT_DISABLE=1")
	return c
}

func (w workplace) apply(value string, args ...string) *exec.Cmd {
	return w.tofu(append([]string{"apply", "-auto-approve", "-input=false", "-no-color", "-var", "value=" + value},
		args...)...)
}

func get(t *testing.T, url string) string {
	t.Helper()
	response, err := http.Get(url)
	require.NoError(t, err)
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, response.StatusCode, string(content))
	return string(content)
}

// An apply is stopped in the middle, its lock is removed with force-unlock, and another apply
// succeeds. The first one continues, and its state is refused.
func TestForceUnlockOfAPausedApply(t *testing.T) {
	url := gate(t)
	first, second := newWorkplace(t, url), newWorkplace(t, url)
	started, goOn := filepath.Join(first.dir, "started"), filepath.Join(first.dir, "go-on")

	paused := first.apply("first", "-var", "script=touch "+started+"; until [ -e "+goOn+" ]; do sleep 0.1; done")
	var output strings.Builder
	paused.Stdout, paused.Stderr = &output, &output
	require.NoError(t, paused.Start())
	testserver.Eventually(t, "the apply is in the middle", func() bool {
		_, err := os.Stat(started)
		return err == nil
	})
	require.NoError(t, paused.Process.Signal(syscall.SIGSTOP))

	refused, err := second.apply("second").CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(refused), "Error acquiring the state lock")
	_, id, found := strings.Cut(string(refused), "ID: ")
	require.True(t, found, string(refused))
	unlocked, err := second.tofu("force-unlock", "-force", strings.Fields(id)[0]).CombinedOutput()
	require.NoError(t, err, string(unlocked))
	applied, err := second.apply("second").CombinedOutput()
	require.NoError(t, err, string(applied))

	require.NoError(t, os.WriteFile(goOn, nil, 0o600))
	require.NoError(t, paused.Process.Signal(syscall.SIGCONT))
	require.Error(t, paused.Wait(), output.String())
	require.Contains(t, output.String(), "HTTP error: 409")

	state := get(t, url)
	require.Contains(t, state, `"second"`)
	require.NotContains(t, state, `"first"`)
	var versions []struct{ Who, Operation string }
	require.NoError(t, json.Unmarshal([]byte(get(t, url+"?versions")), &versions))
	require.NotEmpty(t, versions)
	require.Equal(t, "OperationTypeApply", versions[len(versions)-1].Operation)
	t.Logf("the paused apply ended with:\n%s", output.String())
}

// After a plan was saved, the state is restored and applied again. With the old serial, the restored state would
// reach the serial of the plan a second time, and the plan would be applied to a state that it was not made for.
func TestSavedPlanIsStaleAfterARestore(t *testing.T) {
	url := gate(t)
	w := newWorkplace(t, url)
	for _, step := range []*exec.Cmd{w.apply("first"), w.apply("second"),
		w.tofu("plan", "-input=false", "-var", "value=planned", "-out=saved"),
		exec.Command("curl", "-fsS", "-X", "POST", url+"?restore=1"), w.apply("third")} {
		output, err := step.CombinedOutput()
		require.NoError(t, err, string(output))
	}
	output, err := w.tofu("apply", "-input=false", "-no-color", "saved").CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(output), "Saved plan is stale")
	require.Contains(t, get(t, url), `"third"`)
}
