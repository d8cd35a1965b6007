package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/lease/remote/wire"
)

// rewatchPause is the time between two tries to watch on.
const rewatchPause = 300 * time.Millisecond

func newWatch() *cobra.Command {
	c := &cobra.Command{Use: "watch RESOURCE|PREFIX*", Short: "Print what happens to a lock, or to all with a prefix",
		Long: "Print what happens to a lock, or with a * at the end to all locks whose names begin so, until\n" +
			"Ctrl-C. The present holders and waiters come first. When the member is lost it goes on with the next\n" +
			"one; of what has ended meanwhile it is not known how, and it is printed as `ended`. With a * locks in\n" +
			"efficiency mode are looked at once a second.",
		Example: "  leased watch account/7\n  leased watch 'account/*'", Args: exactly(1, "the name of a lock, or a prefix and *")}
	a, o := addAccess(c), addOutput(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		request := &pb.WatchRequest{Resource: args[0]}
		if prefix, ok := trimStar(args[0]); ok {
			request = &pb.WatchRequest{Prefix: &prefix}
		}
		ctx, stop := untilInterrupted(c.Context())
		defer stop()
		w := &watcher{known: map[string]*pb.Event{}, print: func(e *pb.Event) error { return o.event(c.OutOrStdout(), e) }}
		return w.run(ctx, a, request, func(err error) {
			fmt.Fprintf(c.ErrOrStderr(), "leased: %v; watching on as soon as there is a leader\n", err)
		})
	}
	return c
}

// watcher prints events, each once, over as many connections as it takes.
type watcher struct {
	print    func(*pb.Event) error
	known    map[string]*pb.Event // who holds or waits, as printed
	replayed map[string]bool      // what a new connection has told so far; nil if it has told all
	synced   bool
}

// run watches until ctx ends. Trouble is told once for each loss.
func (w *watcher) run(ctx context.Context, a *access, request *pb.WatchRequest, trouble func(error)) error {
	for told := false; ; {
		err := a.onLeader(ctx, func(conn *grpc.ClientConn) error {
			w.replayed = map[string]bool{}
			stream, err := pb.NewLeaseServiceClient(conn).Watch(ctx, request)
			for err == nil {
				var event *pb.Event
				if event, err = stream.Recv(); err == nil {
					told = false
					err = w.event(event)
				}
			}
			if errors.Is(err, io.EOF) {
				return lease.ErrUncertain // a watch does not end by itself
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
		case !told:
			trouble(err)
			told = true
		}
		select {
		case <-time.After(rewatchPause):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// event prints what was not printed before.
func (w *watcher) event(e *pb.Event) error {
	key := fmt.Sprintf("%s %d %s", e.Party.GetSessionId(), e.Party.GetNonce(), e.Resource)
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

// sync prints what has ended while nobody was listened to.
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
	text := fmt.Sprintf("%-9s  %s  %s", e.Type, e.Resource, nameOf(e.Party.GetHolder()))
	if token := e.Party.GetToken(); token != 0 {
		text += fmt.Sprintf("  token %d", token)
	}
	if e.Place > 0 {
		text += fmt.Sprintf("  place %d", e.Place)
	}
	_, err := fmt.Fprintf(w, "%s  waiting %d\n", text, e.Waiters)
	return err
}
