package supervise

import (
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// OwnGroup returns attributes that put a process into its own process group, and make the kernel kill it
// when the thread that started it ends.
func OwnGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// endWithParent sets the parent death signal for this thread. The kernel drops the
// setting of OwnGroup when another thread of the process calls exec.
func endWithParent() { _ = unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0) }

// adoptOrphans makes this process the parent of orphans, so it can wait for
// them.
func adoptOrphans() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// childInfo is a siginfo_t about a child.
type childInfo struct {
	_     [3]int32
	child struct {
		_      [0]uintptr // the alignment of the union in C
		pid    int32
		_      uint32 // uid
		status int32
		_      [116]byte
	}
}

// noticesStops reports whether stoppedBy notices that the command uses the terminal in the background: not if the
// command ignores the signal, as in the command substitution of a shell.
func noticesStops() bool {
	text, _ := os.ReadFile("/proc/self/status")
	_, line, found := strings.Cut(string(text), "\nSigIgn:\t")
	digits, _, _ := strings.Cut(line, "\n")
	ignored, err := strconv.ParseUint(digits, 16, 64)
	return found && err == nil && ignored&(1<<(syscall.SIGTTIN-1)) == 0
}

// stoppedBy returns the signal that has stopped the command since the last call, 0 if none has.
func (g group) stoppedBy() syscall.Signal {
	var info childInfo
	if unix.Waitid(unix.P_PID, int(g), (*unix.Siginfo)(unsafe.Pointer(&info)), unix.WSTOPPED|unix.WNOHANG, nil) != nil {
		return 0
	}
	return syscall.Signal(info.child.status)
}

// reapOrphans removes adopted processes that have exited from the table of processes. Somebody else waits
// for the others.
func reapOrphans(others ...int) {
	for {
		var info childInfo
		err := unix.Waitid(unix.P_ALL, 0, (*unix.Siginfo)(unsafe.Pointer(&info)), unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
		pid := int(info.child.pid)
		if err != nil || pid == 0 || slices.Contains(others, pid) {
			return
		}
		_, _ = unix.Wait4(pid, nil, 0, nil)
	}
}

// awaitLeader waits until the command has exited, without reaping it.
func (g group) awaitLeader(*exec.Cmd) {
	for {
		err := unix.Waitid(unix.P_PID, int(g), nil, unix.WEXITED|unix.WNOWAIT, nil)
		if err != unix.EINTR {
			return
		}
	}
}

// bootTime returns the time since boot, including suspends.
func bootTime() time.Duration {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) != nil {
		_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	}
	return time.Duration(ts.Nano())
}
