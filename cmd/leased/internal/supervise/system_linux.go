package supervise

import (
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// attributes put the command into a process group of its own, and end it with
// the supervisor.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// endWithParent says for this thread what attributes say for the first one of
// the process: the kernel forgets it when another thread becomes a program.
func endWithParent() { _ = unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0) }

// adoptOrphans makes this process the parent of processes whose parent has
// ended, so that it can wait for them.
func adoptOrphans() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// awaitLeader waits until the leader has ended, and does not reap it.
func (g group) awaitLeader(*exec.Cmd) {
	for {
		err := unix.Waitid(unix.P_PID, int(g), nil, unix.WEXITED|unix.WNOWAIT, nil)
		if err != unix.EINTR {
			return
		}
	}
}

// bootTime is the time since the machine started, suspended or not.
func bootTime() time.Duration {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) != nil {
		_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	}
	return time.Duration(ts.Nano())
}
