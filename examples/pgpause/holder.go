//go:build unix

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate/sqlgate/pgxgate"
)

// What the parent tells a holder.
const (
	envDSN    = "PGPAUSE_DSN"
	envAmount = "PGPAUSE_AMOUNT"
	envGated  = "PGPAUSE_GATED"
)

func isHolder() bool { return os.Getenv(envDSN) != "" }

// actAsHolder is the other process: it changes the balance under the lock.
func actAsHolder() {
	if err := hold(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "holder:", err)
		os.Exit(1)
	}
}

// say tells the parent what was done: a word for the program, and a sentence
// for the timeline.
func say(word, format string, args ...any) { fmt.Printf("%s|%s\n", word, fmt.Sprintf(format, args...)) }

func hold(ctx context.Context) error {
	pool, err := pgxpool.New(ctx, os.Getenv(envDSN))
	if err != nil {
		return err
	}
	defer pool.Close()
	for {
		err := update(ctx, pool)
		if !errors.Is(err, fencing.ErrStale) {
			return err
		}
		say("refused", "is refused: %v", err)
	}
}

// update changes the balance once: lock, read, write, unlock.
func update(ctx context.Context, pool *pgxpool.Pool) error {
	amount, err := strconv.Atoi(os.Getenv(envAmount))
	if err != nil {
		return err
	}
	gated := os.Getenv(envGated) == "true"
	gate := pgxgate.New(pool, fencing.Rule{MaxJump: fencing.DefaultMaxJump})
	token, err := acquire(ctx, pool)
	if err != nil {
		return err
	}
	say("acquired", "acquires the lock, token %d", token)
	if gated {
		if err := gate.Enter(ctx, "account/7", token); err != nil {
			return err
		}
	}
	var balance int
	if err := pool.QueryRow(ctx, `SELECT balance FROM accounts WHERE id = 7`).Scan(&balance); err != nil {
		return err
	}
	say("read", "reads the balance: %d", balance)
	if err := mayGoOn(); err != nil {
		return err
	}
	balance += amount
	const write = `UPDATE accounts SET balance = $1 WHERE id = 7`
	if gated {
		err = gate.Do(ctx, "account/7", token, func(tx pgxgate.Tx) error {
			_, err := tx.Exec(ctx, write, balance)
			return err
		})
	} else {
		_, err = pool.Exec(ctx, write, balance)
	}
	if err != nil {
		return err
	}
	say("wrote", "writes the balance: %d", balance)
	say("done", "gives the lock back")
	return release(ctx, pool, token)
}

// mayGoOn waits for the parent, which answers at once, so that a stop falls
// between the read and the write, and nowhere else.
func mayGoOn() error {
	_, err := io.ReadFull(os.Stdin, make([]byte, 1))
	return err
}

// holder is the parent's side of such a process.
type holder struct {
	name    string
	cmd     *exec.Cmd
	words   *bufio.Scanner
	resumer io.Writer
	line    *timeline
}

// start runs this program again as a holder.
func start(name, dsn string, amount int, gated bool, line *timeline) (*holder, error) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), envDSN+"="+dsn, envAmount+"="+strconv.Itoa(amount), envGated+"="+strconv.FormatBool(gated))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	return &holder{name: name, cmd: cmd, words: bufio.NewScanner(out), resumer: in, line: line}, cmd.Start()
}

// until prints what the holder does, up to and with the word. It lets the
// holder go on after a read, except after the one that is waited for.
func (h *holder) until(word string) error {
	for h.words.Scan() {
		said, sentence, _ := strings.Cut(h.words.Text(), "|")
		h.line.print(h.name, sentence)
		if said == word {
			return nil
		}
		if said == "read" {
			if err := h.goOn(); err != nil {
				return err
			}
		}
	}
	return fmt.Errorf("%s ended before %q", h.name, word)
}

func (h *holder) goOn() error {
	_, err := h.resumer.Write([]byte("."))
	return err
}

// stop stops the process with SIGSTOP, waits until it stands still, and only
// then allows it to go on: what it does next happens after SIGCONT.
func (h *holder) stop() error {
	if err := h.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(h.cmd.Process.Pid, &status, syscall.WUNTRACED, nil); err != nil {
		return err
	}
	if !status.Stopped() {
		return fmt.Errorf("%s did not stop: status %#x", h.name, status)
	}
	return h.goOn()
}

func (h *holder) resume() error { return h.cmd.Process.Signal(syscall.SIGCONT) }

// wait waits for a good end.
func (h *holder) wait() error { return h.cmd.Wait() }

// end makes sure that the process does not outlive the scene.
func (h *holder) end() {
	if h.cmd.ProcessState == nil {
		_ = h.cmd.Process.Kill()
		_ = h.cmd.Wait()
	}
}
