package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	pb "github.com/leased-project/leased/api/leased/v1"
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
