package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"

	"golang.org/x/sync/errgroup"

	"github.com/leased-project/leased/bench/peers/leased"
	"github.com/leased-project/leased/bench/peers/process"
	"github.com/leased-project/leased/internal/load"
)

const (
	// openers is how many clients a holder opens at once, and takers how many leases it acquires at once.
	openers = 16
	takers  = 128
)

// holder is a process that holds leases and keeps sessions alive.
type holder struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *json.Decoder
}

// order tells a holder what to hold in total.
type order struct{ Sessions, Leases int }

// answer says what a holder holds.
type answer struct {
	order
	Error string
}

// startHolder starts a holder for the members.
func (c *cluster) startHolder() (*holder, error) {
	cmd, in, out, err := process.Self(context.Background(), "-hold", c.Address())
	return &holder{cmd, in, json.NewDecoder(out)}, err
}

// hold returns when the holder has this many sessions and leases.
func (h *holder) hold(o order) error {
	if err := json.NewEncoder(h.in).Encode(o); err != nil {
		return fmt.Errorf("tell the holder to hold %d leases: %w", o.Leases, err)
	}
	var a answer
	if err := h.out.Decode(&a); err != nil {
		return fmt.Errorf("read the answer of the holder: %w", err)
	}
	if a.Error != "" {
		return fmt.Errorf("hold %d leases in %d sessions: %s", o.Leases, o.Sessions, a.Error)
	}
	return nil
}

// stop ends the holder at once; the members that it used end too.
func (h *holder) stop() {
	_ = h.cmd.Process.Kill()
	_ = h.cmd.Wait()
}

// hold is the program of a holder: it carries out orders until the input ends.
func hold(ctx context.Context, address string, in io.Reader, out io.Writer) error {
	target, err := leased.Raft("").Attach(address)
	if err != nil {
		return err
	}
	var clients []load.Client
	taken := 0
	orders := json.NewDecoder(bufio.NewReader(in))
	for {
		var o order
		if err := orders.Decode(&o); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		more := make([]load.Client, max(0, o.Sessions-len(clients)))
		err := inParallel(openers, len(more), func(i int) (err error) { more[i], err = target.Open(ctx); return err })
		clients = append(clients, more...)
		if err == nil {
			err = inParallel(takers, o.Leases-taken, func(i int) error {
				_, err := clients[(taken+i)%len(clients)].Acquire(ctx, "held/"+strconv.Itoa(taken+i))
				return err
			})
			taken = max(taken, o.Leases)
		}
		a := answer{order: o}
		if err != nil {
			a.Error = err.Error()
		}
		if err := json.NewEncoder(out).Encode(a); err != nil {
			return err
		}
	}
}

// inParallel calls do for 0 to n-1, several at once, and stops after the first error.
func inParallel(workers, n int, do func(i int) error) error {
	group, ctx := errgroup.WithContext(context.Background())
	group.SetLimit(workers)
	for i := 0; i < n && ctx.Err() == nil; i++ {
		group.Go(func() error { return do(i) })
	}
	return group.Wait()
}
