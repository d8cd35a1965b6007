package testserver

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

const pausedLine = "paused\n"

// pausedChild runs the test program again as a child with these environment variables, and
// waits until it prints that it pauses. The test kills it when it ends.
func pausedChild(t testing.TB, variables []string) (child *exec.Cmd, input io.Closer, output *bufio.Reader) {
	t.Helper()
	SkipIfShort(t)
	child = exec.Command(os.Args[0])
	child.Env = append(os.Environ(), variables...)
	child.Stderr = os.Stderr
	input, inputErr := child.StdinPipe()
	stdout, outputErr := child.StdoutPipe()
	if err := cmp.Or(inputErr, outputErr); err != nil {
		t.Fatalf("start a child: %v", err)
	}
	if err := child.Start(); err != nil {
		t.Fatalf("start a child: %v", err)
	}
	t.Cleanup(func() {
		_ = child.Process.Kill()
		_ = child.Wait()
	})
	output = bufio.NewReader(stdout)
	if line, err := output.ReadString('\n'); line != pausedLine {
		t.Fatalf("the child printed %q instead of pausing: %v", line, err)
	}
	return child, input, output
}

// KillPaused runs the test program again as a child with these environment
// variables, waits until the child calls PauseForKill, and kills it.
func KillPaused(t testing.TB, variables ...string) {
	t.Helper()
	child, _, _ := pausedChild(t, variables)
	_ = child.Process.Kill()
	_ = child.Wait()
}

// PauseForKill is called by the child of KillPaused where it is to be killed. It does
// not return.
func PauseForKill() {
	fmt.Print(pausedLine)
	select {}
}

// PauseChild runs the test program again as a child with these environment variables,
// waits until it calls AwaitResume, and stops it with SIGSTOP. The returned function
// continues the child and returns its further output and its exit code.
func PauseChild(t testing.TB, variables ...string) (resume func() (output string, code int)) {
	t.Helper()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("pause a child: %v", err)
		}
	}
	child, input, output := pausedChild(t, variables)
	check(child.Process.Signal(syscall.SIGSTOP))
	return func() (string, int) {
		t.Helper()
		check(child.Process.Signal(syscall.SIGCONT))
		_ = input.Close()
		rest, err := io.ReadAll(output)
		check(err)
		if err := child.Wait(); !errors.As(err, new(*exec.ExitError)) {
			check(err)
		}
		return string(rest), child.ProcessState.ExitCode()
	}
}

// AwaitResume is called by the child of PauseChild where it is to be stopped. It returns when the
// parent has continued the child.
func AwaitResume() {
	fmt.Print(pausedLine)
	_, _ = io.Copy(io.Discard, os.Stdin)
}
