package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/cmd/leased/internal/lockview"
	"github.com/leased-project/leased/cmd/leased/internal/terminal"
	"github.com/leased-project/leased/internal/wire"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/lease/engine"
)

func setUpInspect(c *cobra.Command) {
	c.Args = exactly(1, "the name of a lock")
	a, o := addAccess(c), addOutput(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		r, err := fetch(c.Context(), a, api.Inspect, &pb.InspectRequest{Resource: args[0]})
		if errors.As(err, new(*wire.NotLeaderError)) {
			return fmt.Errorf("%w; `leased top --once %s` shows the state of one member", err, args[0])
		}
		if err != nil {
			return readError(err)
		}
		return o.print(c, r.Lock, func(t *tabwriter.Writer) { tableOfLock(t, r.Lock) })
	}
}

func tableOfLock(t *tabwriter.Writer, lock *pb.Lock) {
	state := "free"
	switch {
	case len(lock.Holders) > 0:
		state = "held"
	case lock.Delayed:
		state = "in its lock-delay"
	}
	fmt.Fprintf(t, "%s: %s, mode %s\n", terminal.Clean(lock.Resource), state, lock.Mode)
	if len(lock.Holders)+len(lock.Waiters) == 0 {
		return
	}
	row(t, "ROLE", "NAME", "USER", "TOKEN", "KIND", "SLOT", sinceTitle, "FOR", "EXPIRES IN", "SESSION")
	for _, p := range lock.Holders {
		row(t, "holder", p.Holder, p.User, number(p.Token), p.Kind, number(p.Slot), sinceText(p.Since), lockview.Age(p.Age),
			roundText(p.TtlLeft), sessionText(p.SessionId))
	}
	for i, p := range lock.Waiters {
		row(t, fmt.Sprintf("waiter %d", i+1), p.Holder, p.User, "", p.Kind, number(p.Slot), sinceText(p.Since),
			lockview.Age(p.Age), "", sessionText(p.SessionId))
	}
}

// sessionText returns a session id, or "" for the zero session.
func sessionText(id string) string {
	if strings.Trim(id, "0") == "" {
		return ""
	}
	return id
}

// number formats n, and 0 as "".
func number[T int32 | int64 | uint64](n T) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}

func setUpBreak(c *cobra.Command) {
	var token uint64
	c.Args = exactly(1, "the name of a lock")
	a, o := addAccess(c), addOutput(c)
	c.Flags().Uint64Var(&token, "token", 0, "token of the lease, shown by leased inspect (required)")
	c.RunE = func(c *cobra.Command, args []string) error {
		if token == 0 {
			return usageError(fmt.Errorf("--token is required: `leased inspect %s` shows it", args[0]))
		}
		return a.call(c.Context(), func(service api) error {
			got, err := service.Break(c.Context(), &pb.BreakRequest{Resource: args[0], Token: token})
			if errors.Is(wire.FromStatus(err), lease.ErrNotHeld) {
				return &codeError{wire.ExitLost, fmt.Errorf("%s is not held with token %d; `leased inspect %s` shows the holders",
					args[0], token, args[0])}
			}
			return o.say(c, got, err, "broke the lease on %s with token %d", args[0], token)
		})
	}
}

// rewatchInterval is the time between two attempts to continue a watch.
const rewatchInterval = 300 * time.Millisecond

func setUpWatch(c *cobra.Command) {
	c.Args = exactly(1, "the name of a lock, or a prefix followed by *")
	a, o := addAccess(c), addOutput(c)
	c.RunE = interruptible(func(c *cobra.Command, args []string) error {
		request := &pb.WatchRequest{Resource: args[0]}
		if prefix, ok := strings.CutSuffix(args[0], "*"); ok {
			request = &pb.WatchRequest{Prefix: &prefix}
		}
		print := func(e *pb.Event) error { return o.event(c.OutOrStdout(), e) }
		w := &watcher{known: map[string]*pb.Event{}, print: print}
		return w.run(c.Context(), a, request, func(err error) {
			fmt.Fprintf(c.ErrOrStderr(), "leased: %v; the watch continues when a leader is available\n", err)
		})
	})
}

// watcher prints each event once, across any number of connections.
type watcher struct {
	print    func(*pb.Event) error
	known    map[string]*pb.Event // the printed holders and waiters
	replayed map[string]bool      // what a new connection has replayed so far; nil when the replay is complete
	synced   bool
}

// run watches until ctx ends. It calls lost once for each broken connection.
func (w *watcher) run(ctx context.Context, a *access, request *pb.WatchRequest, lost func(error)) error {
	for reported := false; ; {
		err := a.call(ctx, func(service api) error {
			w.replayed = map[string]bool{}
			stream, err := service.Watch(ctx, request)
			if err != nil {
				return err
			}
			return receive(stream, func(e *pb.Event) error {
				reported = false
				return w.event(e)
			})
		})
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case !w.synced || !temporary(err):
			return err
		case !reported:
			lost(err)
			reported = true
		}
		if err := engine.Sleep(ctx, rewatchInterval); err != nil {
			return err
		}
	}
}

// event prints an event unless it was printed before.
func (w *watcher) event(e *pb.Event) error {
	// Session and nonce of another user's party may be hidden.
	p := e.Party
	key := fmt.Sprintf("%s %d %s %s %s", p.GetSessionId(), p.GetNonce(), e.Resource, p.GetUser(), p.GetHolder())
	switch e.Type {
	case "synced":
		return w.sync(e)
	case "granted", "waiting":
		before := w.known[key]
		w.known[key] = e
		if w.replayed != nil {
			if w.replayed[key] = true; before.GetType() == e.Type {
				return nil
			}
		}
	default:
		delete(w.known, key)
	}
	return w.print(e)
}

// sync prints the leases that ended while there was no connection.
func (w *watcher) sync(e *pb.Event) error {
	for _, key := range slices.Sorted(maps.Keys(w.known)) {
		if w.replayed[key] {
			continue
		}
		last := w.known[key]
		delete(w.known, key)
		if err := w.print(&pb.Event{Type: "ended", Resource: last.Resource, Mode: last.Mode, Party: last.Party}); err != nil {
			return err
		}
	}
	w.replayed = nil
	if w.synced {
		return nil
	}
	w.synced = true
	return w.print(e)
}

// event prints one event as a line.
func (o *output) event(w io.Writer, e *pb.Event) error {
	if o.format == "json" {
		return printJSON(w, e, "")
	}
	if e.Type == "synced" {
		return nil
	}
	text := fmt.Sprintf("%-9s  %s  %s", e.Type, e.Resource, partyText(e.Party.GetHolder(), e.Party.GetUser()))
	if token := e.Party.GetToken(); token != 0 {
		text += fmt.Sprintf("  token %d", token)
	}
	if e.Place > 0 {
		text += fmt.Sprintf("  number %d in the queue", e.Place)
	}
	_, err := fmt.Fprintf(w, "%s  waiters %d\n", text, e.Waiters)
	return err
}
