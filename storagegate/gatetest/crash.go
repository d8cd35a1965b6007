package gatetest

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
)

const pausedLine = "paused\n"

// KillPaused runs the test program again as a child that holds the token, waits
// until the child calls PauseForKill, and kills it. The child finds the
// variables in its environment, and resource and token by fencing.FromEnviron.
func KillPaused(t testing.TB, resource fencing.Resource, token fencing.Token, variables ...string) {
	t.Helper()
	child := exec.Command(os.Args[0])
	child.Env = append(append(os.Environ(), variables...), fencing.Environ(resource, token)...)
	child.Stderr = os.Stderr
	output, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	line, err := bufio.NewReader(output).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, pausedLine, line)
	require.NoError(t, child.Process.Kill())
	_ = child.Wait()
}

// PauseForKill is called by the child of KillPaused between check and commit. It
// does not return.
func PauseForKill() {
	fmt.Print(pausedLine)
	select {}
}
