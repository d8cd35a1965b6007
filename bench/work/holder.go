package work

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sync/errgroup"

	"github.com/leased-project/leased/internal/load"
)

const (
	// openers is how many clients a holder opens at once, and takers how many leases it acquires at once.
	openers = 16
	takers  = 128
	// maxSessions bounds the sessions of a holder, each of which has two connections: a process may have only some ten
	// thousand file descriptors.
	maxSessions = 5000
)

// order tells a holder what to hold in total. A holder is a child process that keeps leases and sessions alive, so
// that the garbage collection of their memory does not slow the workers that are measured.
type order struct{ Sessions, Leases int }

// holder is a running holder.
type holder struct {
	*child
	answers *json.Decoder
}

// hold returns when the holders of a target have this many sessions, which share the leases evenly. It starts a holder
// for each maxSessions.
func (t *target) hold(o order) error {
	for i := 0; i*maxSessions < o.Sessions; i++ {
		if i == len(t.holders) {
			started, err := startChild(context.Background(),
				childSettings{Kind: t.kind.Name, Address: t.peer.Address(), Holds: true})
			if err != nil {
				return err
			}
			t.holders = append(t.holders, &holder{started, json.NewDecoder(started.out)})
		}
		sessions := min(maxSessions, o.Sessions-i*maxSessions)
		if err := t.holders[i].hold(order{Sessions: sessions, Leases: o.Leases / o.Sessions * sessions}); err != nil {
			return err
		}
	}
	return nil
}

// hold returns when the holder has carried out an order.
func (h *holder) hold(o order) error {
	if err := json.NewEncoder(h.in).Encode(o); err != nil {
		return fmt.Errorf("tell the holder to hold %d leases: %w", o.Leases, err)
	}
	var failed string
	if err := h.answers.Decode(&failed); err != nil {
		return fmt.Errorf("read the answer of the holder: %w", err)
	}
	if failed != "" {
		return fmt.Errorf("hold %d leases in %d sessions: %s", o.Leases, o.Sessions, failed)
	}
	return nil
}

// stop ends the servers, and at once the holders that used them.
func (t *target) stop() {
	for _, h := range t.holders {
		_ = h.cmd.Process.Kill()
		_ = h.cmd.Wait()
	}
	t.peer.Stop()
}

// holdOrders is the program of a holder: it carries out orders until the input ends, and answers each with an error
// or "".
func holdOrders(ctx context.Context, target load.Target, in io.Reader, out io.Writer) error {
	var clients []load.Client
	taken := 0
	for orders := json.NewDecoder(in); ; {
		var o order
		if err := orders.Decode(&o); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		more := make([]load.Client, max(0, o.Sessions-len(clients)))
		err := inParallel(openers, len(more), func(i int) (err error) { more[i], err = target(ctx); return err })
		clients = append(clients, more...)
		if err == nil {
			err = inParallel(takers, o.Leases-taken, func(i int) error {
				_, err := clients[(taken+i)%len(clients)].Acquire(ctx, fmt.Sprintf("held/%d/%d", os.Getpid(), taken+i))
				return err
			})
			taken = max(taken, o.Leases)
		}
		failed := ""
		if err != nil {
			failed = err.Error()
		}
		if err := json.NewEncoder(out).Encode(failed); err != nil {
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
