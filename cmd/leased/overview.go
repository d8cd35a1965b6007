package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/cmd/leased/internal/lockview"
	"github.com/leased-project/leased/cmd/leased/internal/settings"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/lease/remote/wire"
)

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
		select {
		case <-time.After(rewatchInterval):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// leaderless is the banner over the state of a single member.
func leaderless(err error) string {
	if !errors.Is(err, wire.ErrNotLeader) {
		return fmt.Sprintf("the leader does not answer; below is the state of one member, which may be old or incomplete (%s)", readText(err))
	}
	return "no leader; below is the state of one member, which may be old or incomplete"
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
	return f.access.call(ctx, func(conn *grpc.ClientConn) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		stream, err := pb.NewLeaseServiceClient(conn).Overview(ctx, request)
		for first := true; err == nil; first = false {
			var answer *pb.OverviewResponse
			if answer, err = stream.Recv(); err != nil {
				break
			}
			f.received = true
			f.deliver(lockview.Update{Overview: answer, Offset: int(request.Offset), Problem: banner, Time: time.Now()})
			if first && f.cluster {
				go f.members(ctx, conn, banner, elected)
			}
		}
		if errors.Is(err, io.EOF) {
			return lease.ErrUncertain // the service does not end an overview
		}
		return err
	})
}

// members delivers the state of the members at intervals until ctx ends. A user without
// the right to see them sees the locks only. A new leader makes the banner obsolete.
func (f *feed) members(ctx context.Context, conn *grpc.ClientConn, banner string, elected func()) {
	for {
		got, err := clusterStatus(ctx, conn)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			f.mu.Lock()
			before := f.known
			f.known = got
			f.mu.Unlock()
			if elected != nil && leaderTerm(got) > leaderTerm(before) {
				f.deliver(lockview.Update{Cluster: got, Problem: "a leader was elected; below is the state of one member until it answers", Time: time.Now()})
				elected()
				return
			}
			f.deliver(lockview.Update{Cluster: got, Problem: banner, Time: time.Now()})
		}
		select {
		case <-time.After(clusterInterval):
		case <-ctx.Done():
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
func clusterStatus(ctx context.Context, conn *grpc.ClientConn) (*pb.ClusterStatusResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	return pb.NewClusterServiceClient(conn).ClusterStatus(ctx, &pb.ClusterStatusRequest{})
}

// learn adds the API addresses of the members to the endpoints, so that the command
// survives the loss of those that it was given.
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
