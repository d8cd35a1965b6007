package testserver

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"sync"
	"syscall"
	"time"
)

// Process is a program that can be paused, killed and restarted. Its methods must not be
// called concurrently, except Alive and Signal.
type Process struct {
	// Name is its name in errors.
	Name string
	// Args are the program and its arguments, and Env further variables of its environment.
	Args, Env []string
	// Log is the file of its output.
	Log string
	// Out, if not nil, reads its standard output until the process has ended.
	Out func(io.Reader)

	dir  string     // its working folder; empty for that of the test
	user *user.User // that runs it; nil for the user of the test

	mu      sync.Mutex
	cmd     *exec.Cmd
	input   io.Closer
	exited  chan struct{}
	expects bool // its end is expected
}

// Start starts it.
func (p *Process) Start() error {
	log, err := os.OpenFile(p.Log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("start %s: the folder of this run was removed by another process; start the run again: %w", p.Name,
			err)
	}
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(p.Args[0], p.Args[1:]...)
	cmd.Env = append(os.Environ(), p.Env...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Dir, cmd.SysProcAttr = p.dir, attributes(p.user, true)
	var output io.Reader
	if p.Out != nil {
		cmd.Stdout = nil
		if output, err = cmd.StdoutPipe(); err != nil {
			return err
		}
	}
	input, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", p.Name, err)
	}
	exited := make(chan struct{})
	p.mu.Lock()
	p.cmd, p.input, p.exited, p.expects = cmd, input, exited, false
	p.mu.Unlock()
	go func() {
		if output != nil {
			p.Out(output) // completely, before Wait closes the pipe
		}
		_ = cmd.Wait()
		close(exited)
	}()
	return nil
}

// Signal sends a signal, if it runs.
func (p *Process) Signal(s syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd != nil {
		_ = p.cmd.Process.Signal(s) // fails if it has ended
	}
}

// Pause stops the process with SIGSTOP.
func (p *Process) Pause() { p.Signal(syscall.SIGSTOP) }

// Resume ends a Pause.
func (p *Process) Resume() { p.Signal(syscall.SIGCONT) }

// End sends a signal and waits until the process has ended. After limit it is killed.
func (p *Process) End(s syscall.Signal, limit time.Duration) {
	p.mu.Lock()
	exited := p.exited
	p.expects = true
	p.mu.Unlock()
	if exited == nil {
		return
	}
	p.Signal(s)
	p.Signal(syscall.SIGCONT)
	select {
	case <-exited:
	case <-time.After(limit):
		p.Signal(syscall.SIGKILL)
		<-exited
	}
}

// Kill ends the process with SIGKILL.
func (p *Process) Kill() { p.End(syscall.SIGKILL, time.Minute) }

// Finish closes the input of the process, which ends it.
func (p *Process) Finish(limit time.Duration) {
	p.mu.Lock()
	if p.input != nil {
		_ = p.input.Close()
	}
	p.mu.Unlock()
	p.End(syscall.SIGCONT, limit)
}

// Pid returns the process id, or 0 if it does not run.
func (p *Process) Pid() int {
	if runs, _ := p.Alive(); !runs {
		return 0
	}
	return p.cmd.Process.Pid
}

// Alive reports whether it runs and, if not, whether that is expected.
func (p *Process) Alive() (runs, expected bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.exited == nil {
		return false, true
	}
	select {
	case <-p.exited:
		return false, p.expects
	default:
		return true, false
	}
}

// LogEnd returns the end of its log, for error messages.
func (p *Process) LogEnd() string {
	const most = 1 << 13
	text, _ := os.ReadFile(p.Log)
	return string(text[max(0, len(text)-most):])
}
