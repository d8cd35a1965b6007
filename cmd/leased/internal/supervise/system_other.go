//go:build unix && !linux

package supervise

import (
	"os/exec"
	"syscall"
	"time"
)

// OwnGroup returns attributes that put a process into its own process group. The guard kills a command when
// the supervisor ends.
func OwnGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// endWithParent does nothing: the guard kills the command.
func endWithParent() {}

// adoptOrphans does nothing: init adopts orphans.
func adoptOrphans() {}

// reapOrphans does nothing: init reaps them.
func reapOrphans(...int) {}

// noticesStops reports that stoppedBy notices nothing.
func noticesStops() bool { return false }

// stoppedBy returns 0: this system cannot wait for stopped processes without reaping them.
func (group) stoppedBy() syscall.Signal { return 0 }

// awaitLeader waits until the command has exited.
func (g group) awaitLeader(cmd *exec.Cmd) { _ = cmd.Wait() }

// bootTime returns the wall clock, which includes suspends.
func bootTime() time.Duration { return time.Duration(time.Now().UnixNano()) }
