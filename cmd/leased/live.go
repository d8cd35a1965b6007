package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/cmd/leased/internal/lockview"
	"github.com/leased-project/leased/cmd/leased/internal/settings"
	"github.com/leased-project/leased/cmd/leased/internal/terminal"
	"github.com/leased-project/leased/internal/wire"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/lease/engine"
)

// redrawInterval is the time after which a live screen is drawn again without news: the
// clock moves, and old data is marked.
const redrawInterval = time.Second

// live shows a view on the terminal until the user quits or ctx ends. It reports false if there is no
// terminal, or if JSON is wanted.
func (f *lockFlags) live(ctx context.Context, view *lockview.View) (shown bool, err error) {
	if f.output.format == "json" {
		return false, nil
	}
	screen, err := terminal.Open(os.Stdin, os.Stdout)
	if errors.Is(err, terminal.ErrNoTerminal) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, (&live{access: f.access, view: view, screen: screen}).run(ctx)
}

// live is a live screen.
type live struct {
	access *access
	view   *lockview.View
	screen *terminal.Screen
}

// run draws the screen until the user quits or ctx ends.
func (l *live) run(ctx context.Context) error {
	defer l.screen.Close()
	tick := time.NewTicker(redrawInterval)
	defer tick.Stop()
	l.draw() // measures how many locks fit
	source := l.open(ctx)
	defer func() { source.stop() }()
	for {
		if err := l.draw(); err != nil {
			return err
		}
		select {
		case update := <-source.updates:
			l.access.learn(update.Cluster)
			l.view.Update(update)
		case err := <-source.failed:
			return err
		case key := <-l.screen.Keys():
			switch l.view.Key(key) {
			case lockview.Quit:
				return nil
			case lockview.Request:
				source.stop()
				source = l.open(ctx)
			}
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (l *live) draw() error {
	width, height := l.screen.Size()
	return l.screen.Draw(l.view.Lines(width, height, time.Now()))
}

// source is a running feed. Nothing arrives from it after stop.
type source struct {
	updates chan lockview.Update
	failed  chan error
	stop    context.CancelFunc
}

// open starts a feed for the request of the view.
func (l *live) open(parent context.Context) source {
	ctx, stop := context.WithCancel(parent)
	s := source{make(chan lockview.Update), make(chan error, 1), stop}
	f := newFeed(l.access, true, func(u lockview.Update) {
		select {
		case s.updates <- u:
		case <-ctx.Done():
		}
	})
	request := l.view.Request()
	go func() { s.failed <- f.run(ctx, request) }()
	return s
}

// follow prints the overview without a terminal until a signal ends it: lines for what has
// changed, or each overview as a line of JSON.
func (f *lockFlags) follow(c *cobra.Command, request *pb.OverviewRequest) error {
	var changes lockview.Changes
	printed := ""
	ctx, cancel := context.WithCancelCause(c.Context())
	defer cancel(nil)
	return newFeed(f.access, false, func(u lockview.Update) {
		problem := u.Problem
		if missing := u.Overview.GetMissing(); problem == "" && missing != "" {
			problem = "locks in efficiency mode are missing: " + missing
		}
		if problem != printed {
			if printed = problem; printed != "" {
				fmt.Fprintf(c.ErrOrStderr(), "leased: %s\n", terminal.Clean(printed))
			}
		}
		var err error
		switch {
		case u.Overview == nil:
		case f.output.format == "json":
			err = printJSON(c.OutOrStdout(), u.Overview, "")
		default:
			for _, line := range changes.Lines(u.Overview, u.Time) {
				err = errors.Join(err, say(c, "%s", line))
			}
		}
		if err != nil {
			cancel(err) // the reader of the output is gone
		}
	}).run(ctx, request)
}

const (
	// localTime is how long the state of one member is shown before the leader is
	// looked for again.
	localTime = 3 * time.Second
	// clusterInterval is the time between two looks at the members.
	clusterInterval = 2 * time.Second
)

// feed follows the overview of locks across failovers.
type feed struct {
	access *access
	// cluster asks for the state of the members, too.
	cluster bool
	// deliver receives what is new. It may be called concurrently.
	deliver func(lockview.Update)

	received bool // a member has answered

	mu    sync.Mutex
	known *pb.ClusterStatusResponse // the members, when they last answered
}

// newFeed returns a feed with its own list of endpoints: it adds the members that it
// learns of.
func newFeed(a *access, cluster bool, deliver func(lockview.Update)) *feed {
	own := *a
	return &feed{access: &own, cluster: cluster, deliver: deliver}
}

// run delivers the answers to a request until ctx ends. Without a leader it shows the
// state of one member. It fails if no member has ever answered, or if the request is
// refused.
func (f *feed) run(ctx context.Context, request *pb.OverviewRequest) error {
	for {
		err := f.stream(ctx, request, "", nil)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if !temporary(err) {
			return err
		}
		local := proto.CloneOf(request)
		local.Local = true
		short, cancel := context.WithTimeout(ctx, localTime)
		localErr := f.stream(short, local, leaderless(err), cancel)
		cancel()
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case !f.received:
			return err
		case short.Err() == nil || errors.Is(localErr, wire.ErrUnreachable):
			f.deliver(lockview.Update{Problem: fmt.Sprintf("%s; retrying", readText(err)), Time: time.Now()})
		}
		if err := engine.Sleep(ctx, rewatchInterval); err != nil {
			return err
		}
	}
}

// oneMember is what a banner says about the state of a single member.
const oneMember = "below is the state of one member, which may be old or incomplete"

// leaderless is the banner over the state of a single member.
func leaderless(err error) string {
	if !errors.Is(err, wire.ErrNotLeader) {
		return fmt.Sprintf("the leader does not answer; %s (%s)", oneMember, readText(err))
	}
	return "no leader; " + oneMember
}

// readText returns the error of a read, which is repeated, as one line.
func readText(err error) string {
	if errors.Is(err, lease.ErrUncertain) {
		return "the connection to the member broke"
	}
	return oneLine(err.Error())
}

// stream delivers the answers of one member with a banner. It calls elected, unless that is
// nil, when it learns of a new leader.
func (f *feed) stream(ctx context.Context, request *pb.OverviewRequest, banner string, elected func()) error {
	f.mu.Lock()
	f.access.learn(f.known)
	f.mu.Unlock()
	return f.access.call(ctx, func(service api) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		stream, err := service.Overview(ctx, request)
		if err != nil {
			return err
		}
		asking := !f.cluster
		return receive(stream, func(answer *pb.OverviewResponse) error {
			f.received = true
			f.deliver(lockview.Update{Overview: answer, Offset: int(request.Offset), Problem: banner, Time: time.Now()})
			if !asking {
				asking = true
				go f.members(ctx, service, banner, elected)
			}
			return nil
		})
	})
}

// members delivers the state of the members at intervals until ctx ends. A user without
// the right to see them sees the locks only, and asks once. A new leader makes the banner obsolete.
func (f *feed) members(ctx context.Context, service api, banner string, elected func()) {
	for {
		got, err := clusterStatus(ctx, service)
		if ctx.Err() != nil || errors.Is(wire.FromStatus(err), lease.ErrForbidden) {
			return
		}
		if err == nil {
			f.mu.Lock()
			before := f.known
			f.known = got
			f.mu.Unlock()
			if elected != nil && leaderTerm(got) > leaderTerm(before) {
				const text = "a leader was elected; below is the state of one member until it answers"
				f.deliver(lockview.Update{Cluster: got, Problem: text, Time: time.Now()})
				elected()
				return
			}
			f.deliver(lockview.Update{Cluster: got, Problem: banner, Time: time.Now()})
		}
		if engine.Sleep(ctx, clusterInterval) != nil {
			return
		}
	}
}

// leaderTerm returns the term of the leader, 0 if there is none.
func leaderTerm(cluster *pb.ClusterStatusResponse) uint64 {
	_, term := lockview.Leader(cluster)
	return term
}

// clusterStatus returns the state of the members as one of them reaches the others.
func clusterStatus(ctx context.Context, service api) (*pb.ClusterStatusResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	return service.ClusterStatus(ctx, &pb.ClusterStatusRequest{})
}

// learn adds the API addresses of the members to the endpoints, so the command survives
// the loss of those that it was given.
func (a *access) learn(cluster *pb.ClusterStatusResponse) {
	known := settings.Split(a.endpoint)
	for _, m := range cluster.GetMembers() {
		for _, other := range append(m.GetStatus().GetMembers(), &pb.Member{ApiAddress: m.GetStatus().GetApiAddress()}) {
			if address := other.ApiAddress; address != "" && !slices.Contains(known, address) {
				known = append(known, address)
			}
		}
	}
	a.endpoint = strings.Join(known, ",")
}
