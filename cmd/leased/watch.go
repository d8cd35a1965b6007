package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/lease/remote/wire"
)

// rewatchInterval is the time between two attempts to continue a watch.
const rewatchInterval = 300 * time.Millisecond

func newWatch() *cobra.Command {
	c := &cobra.Command{Use: "watch RESOURCE|PREFIX*", Short: "Print the events of a lock, or of all locks with a prefix",
		Long: "Print the events of a lock, or with a trailing * of all locks with that prefix, until Ctrl-C. The current\n" +
			"holders and waiters come first. If the connection to the member breaks, the watch continues with the next\n" +
			"member; leases that ended meanwhile are printed as `ended`, because the reason is not known. With a *,\n" +
			"locks in efficiency mode are polled once a second.",
		Example: "  leased watch account/7\n  leased watch 'account/*'", Args: exactly(1, "the name of a lock, or a prefix followed by *")}
	a, o := addAccess(c), addOutput(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		request := &pb.WatchRequest{Resource: args[0]}
		if prefix, ok := strings.CutSuffix(args[0], "*"); ok {
			request = &pb.WatchRequest{Prefix: &prefix}
		}
		ctx, stop := untilInterrupted(c.Context())
		defer stop()
		w := &watcher{known: map[string]*pb.Event{}, print: func(e *pb.Event) error { return o.event(c.OutOrStdout(), e) }}
		return w.run(ctx, a, request, func(err error) {
			fmt.Fprintf(c.ErrOrStderr(), "leased: %v; the watch continues when a leader is available\n", err)
		})
	}
	return c
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
		err := a.call(ctx, func(conn *grpc.ClientConn) error {
			w.replayed = map[string]bool{}
			stream, err := pb.NewLeaseServiceClient(conn).Watch(ctx, request)
			for err == nil {
				var event *pb.Event
				if event, err = stream.Recv(); err == nil {
					reported = false
					err = w.event(event)
				}
			}
			if errors.Is(err, io.EOF) {
				return lease.ErrUncertain // the service does not end a watch
			}
			return err
		})
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, wire.ErrUnauthenticated):
			return err
		case !w.synced || !errors.Is(err, lease.ErrUncertain) && !errors.Is(err, lease.ErrUnavailable):
			return err
		case !reported:
			lost(err)
			reported = true
		}
		select {
		case <-time.After(rewatchInterval):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// event prints an event unless it was printed before.
func (w *watcher) event(e *pb.Event) error {
	// Session and nonce of another user's party may be hidden.
	key := fmt.Sprintf("%s %d %s %s %s", e.Party.GetSessionId(), e.Party.GetNonce(), e.Resource, e.Party.GetUser(), e.Party.GetHolder())
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
		gone := &pb.Event{Type: "ended", Resource: w.known[key].Resource, Mode: w.known[key].Mode, Party: w.known[key].Party}
		delete(w.known, key)
		if err := w.print(gone); err != nil {
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
