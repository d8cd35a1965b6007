//go:build linux

package torture

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// process is a program that can be paused, killed and restarted. Its methods must not be
// called concurrently, except alive and signal.
type process struct {
	name string
	args []string
	env  []string
	// log is the file of its output.
	log string
	// out, if not nil, reads its standard output until the process has ended.
	out func(io.Reader)

	mu      sync.Mutex
	cmd     *exec.Cmd
	input   io.Closer
	exited  chan struct{}
	expects bool // its end is expected
}

// start starts it.
func (p *process) start() error {
	log, err := os.OpenFile(p.log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("start %s: the folder of this run was removed by another process; start the run again: %w", p.name, err)
	}
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(p.args[0], p.args[1:]...)
	cmd.Env = append(os.Environ(), p.env...)
	cmd.Stdout, cmd.Stderr = log, log
	// Ctrl-C at a terminal reaches only the parent, and the death of the parent
	// ends the process.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	var output io.Reader
	if p.out != nil {
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
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	exited := make(chan struct{})
	p.mu.Lock()
	p.cmd, p.input, p.exited, p.expects = cmd, input, exited, false
	p.mu.Unlock()
	go func() {
		if output != nil {
			p.out(output) // completely, before Wait closes the pipe
		}
		_ = cmd.Wait()
		close(exited)
	}()
	return nil
}

// signal sends a signal, if it runs.
func (p *process) signal(s syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd != nil {
		_ = p.cmd.Process.Signal(s) // fails if it has ended
	}
}

// end sends a signal and waits until the process has ended. After limit it is killed.
func (p *process) end(s syscall.Signal, limit time.Duration) {
	p.mu.Lock()
	exited := p.exited
	p.expects = true
	p.mu.Unlock()
	if exited == nil {
		return
	}
	p.signal(s)
	p.signal(syscall.SIGCONT)
	select {
	case <-exited:
	case <-time.After(limit):
		p.signal(syscall.SIGKILL)
		<-exited
	}
}

func (p *process) kill() { p.end(syscall.SIGKILL, time.Minute) }

// finish closes the input of the process, which ends it.
func (p *process) finish(limit time.Duration) {
	p.mu.Lock()
	if p.input != nil {
		_ = p.input.Close()
	}
	p.mu.Unlock()
	p.end(syscall.SIGCONT, limit)
}

// pid returns the process id.
func (p *process) pid() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cmd.Process.Pid
}

// alive reports whether it runs and, if not, whether that is expected.
func (p *process) alive() (runs, expected bool) {
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
