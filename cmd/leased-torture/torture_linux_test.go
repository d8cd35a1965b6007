package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/proptest/torture"
)

// folder is the folder of the built programs. leased-torture finds leased beside itself.
var folder string

// TestMain builds both programs, once for all tests.
func TestMain(m *testing.M) {
	os.Exit(func() int {
		var err error
		if folder, err = os.MkdirTemp("", "leased-torture-test-"); err != nil {
			panic(err)
		}
		defer os.RemoveAll(folder)
		if out, err := exec.Command("go", "build", "-o", folder, ".", "../leased").CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "build leased-torture and leased: %v\n%s", err, out)
			return 1
		}
		return m.Run()
	}())
}

// remaining returns the command lines of running processes whose program is in the folder.
func remaining(t *testing.T) (found []string) {
	t.Helper()
	paths, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(t, err)
	for _, path := range paths {
		text, err := os.ReadFile(path) // the process may have exited
		if line := string(bytes.ReplaceAll(text, []byte{0}, []byte(" "))); err == nil && strings.Contains(line, folder) {
			found = append(found, line)
		}
	}
	return found
}

func TestReport(t *testing.T) {
	dir := t.TempDir()
	report, picture := filepath.Join(dir, "report.json"), filepath.Join(dir, "picture.html")
	out, err := exec.Command(filepath.Join(folder, "leased-torture"), "--duration=6s", "--seed=7", "--workers=6",
		"--report="+report, "--picture="+picture).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "0 violations")
	require.Empty(t, remaining(t))

	text, err := os.ReadFile(report)
	require.NoError(t, err)
	var r torture.Result
	require.NoError(t, json.Unmarshal(text, &r))
	require.Empty(t, r.Violations)
	require.Equal(t, []uint64{7}, r.Seeds)
	require.Positive(t, r.Writes)
	page, err := os.ReadFile(picture)
	require.NoError(t, err)
	require.Contains(t, string(page), "<!doctype html>")
}

// Ctrl-C, which reaches every process of the foreground group, ends the program
// and everything that it has started.
func TestInterrupt(t *testing.T) {
	cmd := exec.Command(filepath.Join(folder, "leased-torture"), "--duration=1h")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	progress, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	var text strings.Builder
	buffer := make([]byte, 4096)
	for !strings.Contains(text.String(), "operations") {
		n, err := progress.Read(buffer)
		require.NoError(t, err, "%s", &text)
		text.Write(buffer[:n])
	}
	require.NoError(t, syscall.Kill(-cmd.Process.Pid, syscall.SIGINT))
	go func() { // it must not block on a full pipe
		for err == nil {
			_, err = progress.Read(buffer)
		}
	}()
	exited := make(chan struct{})
	var state *os.ProcessState
	go func() { state, _ = cmd.Process.Wait(); close(exited) }()
	select {
	case <-exited:
	case <-time.After(3 * time.Minute):
		require.Fail(t, "leased-torture has not exited")
	}
	require.Equal(t, exitInterrupted, state.ExitCode())
	require.Empty(t, remaining(t))
}
