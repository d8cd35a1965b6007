//go:build unix

package demo

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// The steps of a holder. It prints each as "STEP|TEXT" and waits for a byte on its
// standard input after stepRead.
const (
	stepAcquired = "acquired"
	stepRead     = "read"
	stepWrote    = "wrote"
	stepRejected = "rejected"
	stepDone     = "done"
)

// process is the process of a holder.
type process struct {
	name   string
	demo   *Pause
	cmd    *exec.Cmd
	stdin  io.Writer
	steps  *bufio.Scanner
	stderr strings.Builder
}

func (d *Pause) startHolder(ctx context.Context, name, dir string, amount int, gated bool) (*process, error) {
	args := append(slices.Clone(d.Holder), name, d.Endpoint, dir, strconv.Itoa(amount), strconv.FormatBool(gated))
	p := &process{name: name, demo: d, cmd: exec.CommandContext(ctx, args[0], args[1:]...)}
	p.cmd.Stderr = &p.stderr
	in, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.stdin, p.steps = in, bufio.NewScanner(out)
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return p, nil
}

// until reports the holder's steps up to and including one. The holder continues
// after every read except that one.
func (p *process) until(last string) error {
	for p.steps.Scan() {
		step, text, ok := strings.Cut(p.steps.Text(), "|")
		if !ok {
			return fmt.Errorf("%s printed %q, which is not STEP|TEXT", p.name, p.steps.Text())
		}
		p.demo.say(p.name, "%s", text)
		if step == last {
			return nil
		}
		if step == stepRead {
			if err := p.proceed(); err != nil {
				return err
			}
		}
	}
	return fmt.Errorf("%s ended before step %q: %s", p.name, last, strings.TrimSpace(p.stderr.String()))
}

// finish waits until the holder is done and has exited.
func (p *process) finish() error {
	if err := p.until(stepDone); err != nil {
		return err
	}
	if err := p.cmd.Wait(); err != nil {
		return fmt.Errorf("%s: %w: %s", p.name, err, strings.TrimSpace(p.stderr.String()))
	}
	return nil
}

// proceed lets a holder continue after its read.
func (p *process) proceed() error {
	_, err := p.stdin.Write([]byte("."))
	return err
}

// stop stops the process and waits until the kernel reports that it is stopped.
// Only then does it let the holder proceed: the write happens after SIGCONT.
func (p *process) stop() error {
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	var status syscall.WaitStatus
	for {
		_, err := syscall.Wait4(p.cmd.Process.Pid, &status, syscall.WUNTRACED, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil {
			return err
		}
		break
	}
	if !status.Stopped() {
		return fmt.Errorf("%s did not stop: status %#x", p.name, status)
	}
	return p.proceed()
}

func (p *process) resume() error { return p.cmd.Process.Signal(syscall.SIGCONT) }

// kill ends a process that is still running.
func (p *process) kill() {
	if p.cmd.ProcessState == nil {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
	}
}
