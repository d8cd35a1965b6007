// Package process runs the servers that are measured.
//
// The nouns: [Process], a server that can be killed and started again; [Servers], those of one
// service; [Cluster], servers with their data.
package process

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"syscall"
	"time"
)

const (
	// stopTime is how long a server may take to stop before it is killed.
	stopTime = 10 * time.Second
	// logEnd is how much of a server's output an error shows.
	logEnd = 2000
)

// Process is a server. Its methods must not be called concurrently.
type Process struct {
	program string
	args    []string
	log     string // file of its output
	cmd     *exec.Cmd
	exited  chan struct{}
}

// Start starts a program that writes its output to the file log.
func Start(log, program string, args ...string) (*Process, error) {
	p := &Process{program: program, args: args, log: log}
	return p, p.Restart()
}

// Restart starts a program that was killed, with the same arguments.
func (p *Process) Restart() error {
	out, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	cmd := exec.Command(p.program, p.args...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = attributes()
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", p.program, err)
	}
	exited := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(exited)
	}()
	p.cmd, p.exited = cmd, exited
	return nil
}

// Pid returns the process id, or 0 if the server does not run.
func (p *Process) Pid() int {
	if !p.Running() {
		return 0
	}
	return p.cmd.Process.Pid
}

// Running reports whether the server runs.
func (p *Process) Running() bool {
	if p.cmd == nil {
		return false
	}
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// Kill ends the server with SIGKILL.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // fails if it has exited
	<-p.exited
}

// Stop ends the server with SIGTERM, and with SIGKILL if that takes too long.
func (p *Process) Stop() {
	if !p.Running() {
		return
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.exited:
	case <-time.After(stopTime):
		p.Kill()
	}
}

// Explain adds the end of the server's output to an error.
func (p *Process) Explain(err error) error {
	if err == nil {
		return nil
	}
	text, _ := os.ReadFile(p.log)
	return errors.Join(err, fmt.Errorf("output of %s:\n%s", p.program, text[max(0, len(text)-logEnd):]))
}

// FreeAddresses returns loopback addresses that no process listens on.
func FreeAddresses(n int) (addresses []string, err error) {
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close()
		addresses = append(addresses, l.Addr().String())
	}
	return addresses, nil
}
