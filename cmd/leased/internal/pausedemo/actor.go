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

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/proptest/promise"
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

	attempts int    // to get the lock
	seen     uint64 // the version of the account that it has read
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
		said, err := hear(a.words.Text())
		if err != nil {
			return fmt.Errorf("%s: %w", a.name, err)
		}
		a.demo.history.note(a, said)
		if said.text != "" {
			a.demo.say(a.name, "%s", said.text)
		}
		if said.word == word {
			return nil
		}
		if said.word == wordRead {
			if err := a.goOn(); err != nil {
				return err
			}
		}
	}
	return fmt.Errorf("%s ended before %q: %s", a.name, word, strings.TrimSpace(a.errors.String()))
}

// finish plays to a good end.
func (a *actor) finish() error {
	if err := a.until(wordDone); err != nil {
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
	a.demo.history.add(promise.Event{Kind: promise.Paused, Who: a.name, Note: "SIGSTOP, between read and write"})
	return a.goOn()
}

func (a *actor) resume() error {
	a.demo.history.add(promise.Event{Kind: promise.Resumed, Who: a.name})
	return a.cmd.Process.Signal(syscall.SIGCONT)
}

// hear reads a sentence as a holder prints it.
func hear(line string) (said sentence, err error) {
	parts := strings.SplitN(line, "|", 3)
	if len(parts) != 3 {
		return said, fmt.Errorf("cannot understand %q", line)
	}
	token, err := strconv.ParseUint(parts[1], 10, 64)
	if err != nil {
		return said, fmt.Errorf("cannot understand %q: %w", line, err)
	}
	return sentence{word: parts[0], token: fencing.Token(token), text: parts[2]}, nil
}

// end makes sure that the process does not outlive the story.
func (a *actor) end() {
	if a.cmd.ProcessState == nil {
		_ = a.cmd.Process.Kill()
		_ = a.cmd.Wait()
	}
}
