package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	pb "github.com/leased-project/leased/api/leased/v1"
)

// rewatchInterval is the time between two attempts to continue a watch.
const rewatchInterval = 300 * time.Millisecond

func setUpWatch(c *cobra.Command) {
	c.Args = exactly(1, "the name of a lock, or a prefix followed by *")
	a, o := addAccess(c), addOutput(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		request := &pb.WatchRequest{Resource: args[0]}
		if prefix, ok := strings.CutSuffix(args[0], "*"); ok {
			request = &pb.WatchRequest{Prefix: &prefix}
		}
		ctx, stop := untilInterrupted(c.Context())
		defer stop()
		print := func(e *pb.Event) error { return o.event(c.OutOrStdout(), e) }
		w := &watcher{known: map[string]*pb.Event{}, print: print}
		return w.run(ctx, a, request, func(err error) {
			fmt.Fprintf(c.ErrOrStderr(), "leased: %v; the watch continues when a leader is available\n", err)
		})
	}
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
		if err := sleep(ctx, rewatchInterval); err != nil {
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
