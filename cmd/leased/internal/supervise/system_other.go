//go:build unix && !linux

package supervise

import (
	"os/exec"
	"syscall"
	"time"
)

// attributes put the command into a process group of its own. Where the system
// does not end it with the supervisor, the guard does.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// endWithParent does nothing: the guard does it.
func endWithParent() {}

// adoptOrphans does nothing: orphans go to init.
func adoptOrphans() {}

// awaitLeader waits until the leader has ended.
func (g group) awaitLeader(cmd *exec.Cmd) { _ = cmd.Wait() }

// bootTime is the time on the wall: it goes on while the machine is suspended.
func bootTime() time.Duration { return time.Duration(time.Now().UnixNano()) }
