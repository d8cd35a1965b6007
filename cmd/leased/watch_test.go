package main

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/internal/wire"
	"github.com/leased-project/leased/lease"
)

// Events that a new connection replays are not printed again, and leases that it
// does not replay have ended.
func TestWatcherPrintsEachEventOnce(t *testing.T) {
	event := func(kind, resource string, nonce uint64) *pb.Event {
		return &pb.Event{Type: kind, Resource: resource, Party: &pb.Party{SessionId: "s", Nonce: nonce}}
	}
	var printed []string
	w := &watcher{known: map[string]*pb.Event{}, print: func(e *pb.Event) error {
		printed = append(printed, e.Type+" "+e.Resource)
		return nil
	}}
	connection := func(events ...*pb.Event) []string {
		printed, w.replayed = nil, map[string]bool{}
		for _, e := range events {
			require.NoError(t, w.event(e))
		}
		return printed
	}
	synced := &pb.Event{Type: "synced"}
	require.Equal(t, []string{"granted a", "waiting a", "synced ", "granted b"},
		connection(event("granted", "a", 1), event("waiting", "a", 2), synced, event("granted", "b", 3)))
	require.Empty(t, connection(event("granted", "a", 1), event("waiting", "a", 2), event("granted", "b", 3), synced))
	require.Equal(t, []string{"granted a", "ended a", "released b"},
		connection(event("granted", "a", 2), event("granted", "b", 3), synced, event("released", "b", 3)))
	require.Equal(t, []string{"ended a"}, connection(synced))
}

// refusing is a connection to a member that refuses every call.
type refusing struct {
	grpc.ClientConnInterface
	calls int
}

func (c *refusing) Invoke(context.Context, string, any, any, ...grpc.CallOption) error {
	c.calls++
	return wire.ToStatus(lease.ErrForbidden)
}

// The state of the members is for users with a right that a viewer of the locks may lack. Each refusal is in the audit
// log, so the feed asks once.
func TestFeedAsksForMembersOnceWithoutTheRight(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	conn := &refusing{}
	new(feed).members(ctx, newAPI(conn), "", nil)
	require.NoError(t, ctx.Err())
	require.Equal(t, 1, conn.calls)
}

// Without a leader, the members are those of a member that knows them.
func TestNewestKnowsTheMembers(t *testing.T) {
	two := []*pb.Member{{Id: "b"}, {Id: "c"}}
	answers := map[string]*pb.StatusResponse{"a": {Id: "a"}, "b": {Id: "b", Members: two}, "c": {Id: "c", Members: two}}
	require.Equal(t, "b", newest(answers).Id)
	answers["c"].Serves = true
	require.Equal(t, "c", newest(answers).Id)
}
