//go:build unix

package raftstore

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/raftstore/logstore"
)

const pausedWriter = "LEASED_TEST_PAUSED_WRITER"

// pipedLog writes until the standard input ends.
type pipedLog struct{ raft.LogStore }

func (pipedLog) StoreLogs([]*raft.Log) error {
	println("writing")
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

// A process that is paused in the middle of a write, for longer than the deadline, continues: the disk had no time to
// answer.
func TestPauseIsNotAStall(t *testing.T) {
	if os.Getenv(pausedWriter) != "" {
		guard := logstore.NewGuard(DefaultStoreDeadline, func(err error) {
			println(err.Error())
			os.Exit(1)
		})
		_ = guard.Log(pipedLog{}).StoreLogs([]*raft.Log{{Index: 1}})
		return
	}
	testserver.SkipIfShort(t)
	t.Parallel()
	cmd := exec.Command(os.Args[0], "-test.run=^TestPauseIsNotAStall$")
	cmd.Env = append(os.Environ(), pausedWriter+"=1")
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	lines := bufio.NewScanner(out)
	require.True(t, lines.Scan())
	require.Equal(t, "writing", lines.Text())
	require.NoError(t, cmd.Process.Signal(syscall.SIGSTOP))
	require.NoError(t, exec.Command("sleep", "7").Run())
	require.NoError(t, cmd.Process.Signal(syscall.SIGCONT))
	require.NoError(t, exec.Command("sleep", "0.3").Run())
	require.NoError(t, in.Close())
	for lines.Scan() {
		t.Log(lines.Text())
	}
	require.NoError(t, cmd.Wait())
}
