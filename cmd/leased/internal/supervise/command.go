//go:build unix

package supervise

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease"
)

// startPatience bounds how long the guard and the command may take to start,
// also on a machine that is very busy.
const startPatience = time.Minute

// Command is a command to run under a lease.
type Command struct {
	// Args are the program and its arguments.
	Args []string
	// Stdin, Stdout and Stderr are handed to the command as they are.
	Stdin, Stdout, Stderr *os.File
	// TTL is that of the lease, Grace the time between SIGTERM and SIGKILL.
	TTL, Grace time.Duration
	// Guard is how to start a process that calls Guard, Hold one that calls
	// Hold with the arguments that are added.
	Guard, Hold []string
	// Signals are passed on to the command's process group.
	Signals <-chan os.Signal
	// Log is told what is done to the command, and why.
	Log func(format string, args ...any)
}

// Result is how a command ended.
type Result struct {
	// Code is its exit code; 128 and the signal's number if a signal ended it.
	Code int
	// Lost is why the command was stopped, or why its lease was gone by the
	// time it ended. It is nil if it ran under its lease from start to end.
	Lost error
}

// Run runs the command until it and its process group are gone. The caller
// releases the lease after that. An error says that the command was not run.
func (c *Command) Run(l *lease.Lease) (Result, error) {
	// The kernel ends the command when the thread that started it ends, so this
	// thread must stay.
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
	if s.look(); s.stopping != nil {
		return Result{}, fmt.Errorf("the command was not started: %w", s.stopping)
	}
	adoptOrphans()
	if program.SysProcAttr.Foreground {
		defer takeTerminal(c.Stdin)
	}
	h, err := startHeld(c.Hold, program)
	if err != nil {
		return Result{}, err
	}
	defer h.close()
	return s.supervise(h)
}

// supervise lets the command go, once the guard knows of it, and sees it
// through. Between the two the supervisor may be stopped: a command that its
// guard did not know could then outlive the lease.
func (s *supervisor) supervise(h *held) (Result, error) {
	s.guard.watch(h.group())
	if err := s.await(s.guard.knows); err != nil {
		h.group().signal(syscall.SIGKILL)
		s.guard.dismiss()
		h.group().reap(h.cmd)
		return Result{}, fmt.Errorf("the command was not started: %w", err)
	}
	s.group = h.group()
	h.letGo()
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
	cmd.Env = append(slices.DeleteFunc(os.Environ(), isSecret), fencing.Environ(l.GateResource(), l.Token())...)
	cmd.SysProcAttr = attributes()
	if isTerminal(c.Stdin) {
		// Else the command could not read from it. Keys such as Ctrl-C then go
		// to the command, as they should.
		cmd.SysProcAttr.Foreground, cmd.SysProcAttr.Ctty = true, int(c.Stdin.Fd())
	}
	return cmd, nil
}

// isSecret: the command works for a user, and need not be able to be that user.
// One that calls the service itself can be given the name of a file.
func isSecret(variable string) bool {
	return strings.HasPrefix(variable, "LEASED_SECRET=") || strings.HasPrefix(variable, "LEASED_REDIS_PASSWORD=")
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

	deadline time.Time // of the lease, as last seen
	stopping error     // why the group was told to end
	killAt   time.Time // set while stopping
	killed   bool
}

// await waits for what needs no more than a moment, and looks after the lease
// meanwhile. It gives up when there would be no use in going on.
func (s *supervisor) await(done <-chan struct{}) error {
	tick := time.NewTicker(s.schedule.poll)
	defer tick.Stop()
	patience := time.NewTimer(startPatience)
	defer patience.Stop()
	for {
		select {
		case <-done:
			return nil
		case <-s.guard.gone:
			return ErrGuard
		case <-patience.C:
			return fmt.Errorf("%w: it, or the command, has not started within %v", ErrGuard, startPatience)
		case <-tick.C:
		}
		if s.look(); s.stopping != nil {
			return s.stopping
		}
	}
}

// run watches the lease until the command has ended, and kills what it left
// behind. The command itself is not reaped yet, so that its number, which is
// that of the group, cannot be given to another process.
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
		}
		s.look()
		if s.stopping != nil && !s.killed && !time.Now().Before(s.killAt) {
			s.command.Log("killing the command")
			s.group.signal(syscall.SIGKILL)
			s.killed = true
		}
	}
}

// look compares the time with the deadline of the lease.
func (s *supervisor) look() {
	if s.stopping != nil {
		return
	}
	if deadline := s.lease.Deadline(); deadline != s.deadline {
		s.deadline = deadline
		s.guard.until(time.Until(deadline.Add(-s.schedule.term)), time.Until(deadline.Add(-s.schedule.kill)))
	}
	now := time.Now()
	err := s.lease.Err() // after the deadline was read: it sees suspends too
	if err == nil && !now.Before(s.deadline.Add(-s.schedule.term)) {
		err = fmt.Errorf("%w: %v are left", ErrEnding, time.Until(s.deadline).Round(time.Millisecond))
	}
	if err != nil {
		s.stop(err, now.Add(s.command.Grace))
	}
}

// stop tells the group to end, and sets when it is killed. There is no way
// back: a command that was told to end is of no use with a lease that came
// back.
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
	s.command.Log("stopping the command: %v", err)
	s.group.signal(syscall.SIGTERM)
	s.group.signal(syscall.SIGCONT) // a stopped process cannot clean up
}
