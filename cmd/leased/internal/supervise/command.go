//go:build unix

package supervise

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease"
)

// startTimeout bounds the start of the guard and of the command.
const startTimeout = time.Minute

// Command is a command to run under a lease.
type Command struct {
	// Args are the program and its arguments.
	Args []string
	// Env are variables for the command, beside the token and the resource.
	Env []string
	// Stdin, Stdout and Stderr are passed to the command.
	Stdin, Stdout, Stderr *os.File
	// TTL is the TTL of the lease, Grace the time between SIGTERM and SIGKILL.
	TTL, Grace time.Duration
	// Guard is the command line of a process that calls Guard. Hold is the command
	// line of a process that calls Hold with further arguments.
	Guard, Hold []string
	// Signals are passed on to the command's process group.
	Signals <-chan os.Signal
	// Log reports why the command is stopped.
	Log func(format string, args ...any)
}

// Result is the result of a command.
type Result struct {
	// Code is its exit code, or 128 plus the number of the signal that ended it.
	Code int
	// Lost is why the command was stopped, or why its lease was lost before it
	// ended. It is nil if the command held its lease from start to end.
	Lost error
}

// Run runs the command until its process group is gone. The caller releases the
// lease after that. An error means that the command did not run. The process must have
// no other children meanwhile.
func (c *Command) Run(l *lease.Lease) (Result, error) {
	// The kernel kills the command when the thread that started it ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := Check(c.TTL, c.Grace); err != nil {
		return Result{}, err
	}
	program, err := c.prepare(l)
	if err != nil {
		return Result{}, err
	}
	g, err := startGuard(c.Guard)
	if err != nil {
		return Result{}, err
	}
	defer g.dismiss()
	s := &supervisor{command: c, lease: l, guard: g, schedule: newSchedule(c.TTL, c.Grace)}
	if s.check(); s.stopping != nil {
		return Result{}, fmt.Errorf("start the command: %w", s.stopping)
	}
	adoptOrphans()
	if s.terminal, s.lent = c.Stdin, program.SysProcAttr.Foreground; !s.lent {
		s.terminal, _ = os.OpenFile("/dev/tty", os.O_RDWR, 0) // nil if this process has none
		defer s.terminal.Close()
	}
	defer s.takeTerminal()
	h, err := startPlaceholder(c.Hold, program)
	if err != nil {
		return Result{}, err
	}
	defer h.close()
	return s.supervise(h)
}

// supervise starts the command after the guard has confirmed that it knows it, and
// waits for its end. A command that the guard did not know could outlive the lease if
// the supervisor was stopped.
func (s *supervisor) supervise(h *placeholder) (Result, error) {
	s.guard.watch(h.group())
	if err := s.await(s.guard.ready); err != nil {
		h.group().signal(syscall.SIGKILL)
		s.guard.dismiss()
		h.group().reap(h.cmd)
		return Result{}, fmt.Errorf("start the command: %w", err)
	}
	s.group = h.group()
	h.startCommand()
	if err := s.await(h.begun); err != nil {
		s.stop(err, time.Now())
	}
	s.run(h.cmd)
	s.guard.dismiss()
	code := s.group.reap(h.cmd)
	if s.stopping == nil {
		if err := h.failure(code); err != nil {
			return Result{}, err
		}
	}
	if s.stopping == nil && errors.Is(s.lease.Err(), lease.ErrLost) {
		s.stopping = s.lease.Err()
	}
	return Result{Code: code, Lost: s.stopping}, nil
}

// prepare finds the program and sets its environment.
func (c *Command) prepare(l *lease.Lease) (*exec.Cmd, error) {
	cmd := exec.Command(c.Args[0], c.Args[1:]...)
	if cmd.Err != nil {
		return nil, startError(c.Args[0], cmd.Err)
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = c.Stdin, c.Stdout, c.Stderr
	own := fencing.Environ(l.GateResource(), l.Token())
	cmd.Env = slices.Concat(slices.DeleteFunc(os.Environ(), isWithheld), own, c.Env)
	cmd.SysProcAttr = OwnGroup()
	if foreground(c.Stdin) == unix.Getpgrp() && !(isPipe(c.Stdout) && noticesStops()) {
		// Otherwise the command cannot read from it, before unstop gives it the terminal. Keys such as Ctrl-C then go to
		// the command. At the end of a pipe may be a program that reads keys, such as a pager.
		cmd.SysProcAttr.Foreground, cmd.SysProcAttr.Ctty = true, int(c.Stdin.Fd())
	}
	return cmd, nil
}

func isPipe(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeNamedPipe != 0
}

// isWithheld reports whether the command does not get an environment variable: a secret, since a command
// that calls the service can use a secret file, or the signed token of another lease.
func isWithheld(variable string) bool {
	name, _, _ := strings.Cut(variable, "=")
	return name == "LEASED_SECRET" || name == "LEASED_REDIS_PASSWORD" || name == fencing.EnvSignedToken
}

func startError(name string, err error) error {
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %s: %w", ErrNotFound, name, err)
	}
	return fmt.Errorf("%w: %s: %w", ErrNotExecutable, name, err)
}

// supervisor is one run.
type supervisor struct {
	command  *Command
	lease    *lease.Lease
	guard    *guard
	schedule schedule
	group    group
	terminal *os.File // nil if there is none
	asks     bool     // the command was stopped because it uses the terminal
	lent     bool     // the command has got the terminal

	deadline time.Time // of the lease, as last seen
	stopping error     // why the command is being stopped
	killAt   time.Time // set while stopping
	killed   bool
}

// await waits for a step of the start, and checks the lease meanwhile. It fails if
// the guard exits, the lease ends or the step takes too long.
func (s *supervisor) await(done <-chan struct{}) error {
	tick := time.NewTicker(s.schedule.poll)
	defer tick.Stop()
	timeout := time.NewTimer(startTimeout)
	defer timeout.Stop()
	for {
		select {
		case <-done:
			return nil
		case <-s.guard.gone:
			return ErrGuard
		case <-timeout.C:
			return fmt.Errorf("%w: the guard or the command did not start within %v", ErrGuard, startTimeout)
		case <-tick.C:
			s.unstop()
		}
		if s.check(); s.stopping != nil {
			return s.stopping
		}
	}
}

// run checks the lease until the command has exited, and then kills the rest of its
// group. The command is not reaped yet, so the kernel cannot reuse its process
// id, which is the id of the group.
func (s *supervisor) run(cmd *exec.Cmd) {
	exited := make(chan struct{})
	go func() { s.group.awaitLeader(cmd); close(exited) }()
	tick := time.NewTicker(s.schedule.poll)
	defer tick.Stop()
	lost, guardGone := s.lease.Done(), s.guard.gone
	for {
		select {
		case <-exited:
			s.group.signal(syscall.SIGKILL)
			return
		case signal := <-s.command.Signals:
			if number, ok := signal.(syscall.Signal); ok {
				s.group.signal(number)
			}
			continue
		case <-lost:
			lost = nil
		case <-guardGone:
			guardGone = nil
			s.stop(ErrGuard, time.Now())
		case <-tick.C:
			reapOrphans(int(s.group), s.guard.cmd.Process.Pid)
			s.unstop()
		}
		s.check()
		if s.stopping != nil && !s.killed && !time.Now().Before(s.killAt) {
			s.group.signal(syscall.SIGKILL)
			s.killed = true
			s.command.Log("killed the command")
		}
	}
}

// unstop resumes a command that job control has stopped. If it was stopped for using the terminal in the background,
// it becomes the foreground group once this process is. After Ctrl-Z it resumes at once: no shell knows its group.
func (s *supervisor) unstop() {
	switch s.group.stoppedBy() {
	case syscall.SIGTTIN, syscall.SIGTTOU:
		s.asks = true
	case syscall.SIGTSTP:
		s.group.signal(syscall.SIGCONT)
	}
	if s.asks && foreground(s.terminal) == unix.Getpgrp() {
		s.asks, s.lent = false, true
		setForeground(s.terminal, int(s.group))
		s.group.signal(syscall.SIGCONT)
	}
}

// takeTerminal brings this process back to the foreground of a terminal that the command has got, and continues the
// processes of its group that could not use it meanwhile.
func (s *supervisor) takeTerminal() {
	if s.lent {
		signal.Ignore(syscall.SIGTTOU) // otherwise the kernel stops a background process here
		setForeground(s.terminal, unix.Getpgrp())
		_ = syscall.Kill(0, syscall.SIGCONT)
	}
}

// check compares the time with the deadline of the lease, and stops the command when
// it is near.
func (s *supervisor) check() {
	if s.stopping != nil {
		return
	}
	if deadline := s.lease.Deadline(); deadline != s.deadline {
		s.deadline = deadline
		s.guard.until(time.Until(deadline.Add(-s.schedule.term)), time.Until(deadline.Add(-s.schedule.kill)))
	}
	now := time.Now()
	err := s.lease.Err() // read after the deadline: it includes suspends
	if err == nil && !now.Before(s.deadline.Add(-s.schedule.term)) {
		err = fmt.Errorf("%w: %v left", ErrNotRenewed, time.Until(s.deadline).Round(time.Millisecond))
	}
	if err != nil {
		s.stop(err, now.Add(s.command.Grace))
	}
}

// stop sends SIGTERM to the group and sets the time of SIGKILL. It is final: the
// command ends even if the lease is renewed after that.
func (s *supervisor) stop(err error, killAt time.Time) {
	if s.stopping != nil {
		return
	}
	s.stopping, s.killAt = err, killAt
	if last := s.deadline.Add(-s.schedule.kill); last.Before(killAt) {
		s.killAt = last
	}
	if s.group == 0 {
		return
	}
	s.guard.until(time.Until(s.killAt), time.Until(s.killAt))
	s.group.signal(syscall.SIGTERM)
	s.command.Log("stopping the command: %v", err) // it may block, if nobody reads it
}
