//go:build unix

package pausedemo

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// What the director tells a holder, in its environment.
const (
	envName     = "LEASED_DEMO_NAME"
	envEndpoint = "LEASED_DEMO_ENDPOINT"
	envDir      = "LEASED_DEMO_DIR"
	envAmount   = "LEASED_DEMO_AMOUNT"
	envGated    = "LEASED_DEMO_GATED"
)

// actor is the director's side of a holder's process.
type actor struct {
	name   string
	demo   *Demo
	cmd    *exec.Cmd
	words  *bufio.Scanner
	prompt io.Writer
	errors strings.Builder
}

// cast starts a holder.
func (d *Demo) cast(ctx context.Context, name, dir string, amount int, gated bool) (*actor, error) {
	a := &actor{name: name, demo: d, cmd: exec.CommandContext(ctx, d.Holder[0], d.Holder[1:]...)}
	a.cmd.Env = append(os.Environ(), envName+"="+name, envEndpoint+"="+d.Endpoint, envDir+"="+dir,
		envAmount+"="+strconv.Itoa(amount), envGated+"="+strconv.FormatBool(gated))
	a.cmd.Stderr = &a.errors
	in, err := a.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := a.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	a.prompt, a.words = in, bufio.NewScanner(out)
	if err := a.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return a, nil
}

// until tells what the holder does, up to and with the word. It lets the holder
// go on after a read, except after the one that is waited for.
func (a *actor) until(word string) error {
	for a.words.Scan() {
		said, sentence, _ := strings.Cut(a.words.Text(), "|")
		a.demo.say(a.name, "%s", sentence)
		if said == word {
			return nil
		}
		if said == "read" {
			if err := a.goOn(); err != nil {
				return err
			}
		}
	}
	return fmt.Errorf("%s ended before %q: %s", a.name, word, strings.TrimSpace(a.errors.String()))
}

// finish plays to a good end.
func (a *actor) finish() error {
	if err := a.until("done"); err != nil {
		return err
	}
	if err := a.cmd.Wait(); err != nil {
		return fmt.Errorf("%s: %w: %s", a.name, err, strings.TrimSpace(a.errors.String()))
	}
	return nil
}

func (a *actor) goOn() error {
	_, err := a.prompt.Write([]byte("."))
	return err
}

// stop stops the process, waits until it stands still, and only then allows it
// to go on: what it does next happens after SIGCONT.
func (a *actor) stop() error {
	if err := a.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	var status syscall.WaitStatus
	for {
		_, err := syscall.Wait4(a.cmd.Process.Pid, &status, syscall.WUNTRACED, nil)
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		break
	}
	if !status.Stopped() {
		return fmt.Errorf("%s did not stop: status %#x", a.name, status)
	}
	return a.goOn()
}

func (a *actor) resume() error { return a.cmd.Process.Signal(syscall.SIGCONT) }

// end makes sure that the process does not outlive the story.
func (a *actor) end() {
	if a.cmd.ProcessState == nil {
		_ = a.cmd.Process.Kill()
		_ = a.cmd.Wait()
	}
}
