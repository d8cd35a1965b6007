//go:build unix

package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/remote"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/storagegate/filegate"
)

// holder updates the account under the lock.
type holder struct {
	client *lease.Client
	gate   *filegate.Gate
	amount int
	gated  bool
	in     io.Reader
	out    io.Writer
}

// Hold is the main function of a holder's process: it updates the account under
// the lock, and starts over if the gate rejects its write. args are what startHolder appends to the command line.
func Hold(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	if len(args) != 5 {
		return errors.New("only `leased demo pause` runs this command")
	}
	name, endpoint, dir, amount, gated := args[0], args[1], args[2], args[3], args[4] == "true"
	h := &holder{gated: gated, in: in, out: out}
	var err error
	if h.amount, err = strconv.Atoi(amount); err != nil {
		return err
	}
	backend, err := remote.New([]string{endpoint}, remote.Config{})
	if err != nil {
		return err
	}
	defer backend.Close()
	if h.client, err = lease.New(backend, lease.WithName(name)); err != nil {
		return err
	}
	defer func() { _ = h.client.Close(ctx) }()
	if h.gate, err = filegate.New(dir, fencing.Rule{}); err != nil {
		return err
	}
	for {
		err := h.update(ctx)
		if !errors.Is(err, fencing.ErrStale) {
			return err
		}
		h.say(stepRejected, "is rejected: %v", err)
	}
}

// update updates the account once: acquire, read, write, release.
func (h *holder) update(ctx context.Context) error {
	l, err := h.client.Acquire(ctx, account, lease.WithTTL(TTL))
	if err != nil {
		return err
	}
	h.say(stepAcquired, "acquires the lock with token %d", l.Token())
	if h.gated {
		// Before the read, so an older holder cannot write after it.
		if err := h.gate.Enter(ctx, account, l.Token()); err != nil {
			return err
		}
	}
	balance, err := readBalance(h.gate.Path(account))
	if err != nil {
		return err
	}
	h.say(stepRead, "reads %d", balance)
	if _, err := io.ReadFull(h.in, make([]byte, 1)); err != nil { // the demo may stop us here
		return err
	}
	balance += h.amount
	if err := h.write(ctx, l.Token(), balance); err != nil {
		return err
	}
	h.say(stepWrote, "writes %d with token %d", balance, l.Token())
	_ = l.Release(ctx) // the lease may have expired, as alice's does
	h.say(stepDone, "is done")
	return nil
}

func (h *holder) write(ctx context.Context, token fencing.Token, balance int) error {
	text := []byte(strconv.Itoa(balance))
	if !h.gated {
		return os.WriteFile(h.gate.Path(account), text, 0o600)
	}
	return h.gate.Do(ctx, account, token, func(file *filegate.File) error {
		_, err := file.Write(text)
		return err
	})
}

// say reports a step to the demo.
func (h *holder) say(step, format string, args ...any) {
	fmt.Fprintf(h.out, "%s|%s\n", step, fmt.Sprintf(format, args...))
}

func readBalance(path string) (int, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(text)))
}
