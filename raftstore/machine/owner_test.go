package machine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

// A session belongs to the user that opened it, also after a snapshot. When it has
// ended, its id belongs to nobody.
func TestSessionHasAnOwner(t *testing.T) {
	m := New()
	id := engine.SessionID{1}
	open := func(user string) Result {
		commands, err := Decode(Encode(&OpenSession{Session: id, TTL: time.Minute, User: user}))
		require.NoError(t, err)
		result, _ := m.Apply(commands[0])
		return result
	}
	incarnation := open("alice").Incarnation
	result, events := m.Apply(&Acquire{Session: id, Incarnation: incarnation,
		Request: engine.Request{Nonce: 1, Resources: []fencing.Resource{"a"}, Mode: engine.Correctness, Holder: "worker"}})
	require.Equal(t, Granted, result.Code)
	require.Equal(t, "alice", events[0].User)
	for range 2 {
		require.Equal(t, Result{Code: Done, Incarnation: incarnation}, open("alice"))
		for _, user := range []string{"bob", ""} {
			require.Equal(t, Result{Code: OtherUser}, open(user))
		}
		require.Equal(t, "alice", m.SessionInfo(id).User)
		holder := m.Inspect("a").Holders[0]
		require.Equal(t, "alice", holder.User)
		require.Equal(t, "worker", holder.Holder)
		restored, err := Restore(m.Snapshot())
		require.NoError(t, err)
		m = restored
	}
	m.Apply(&CloseSession{Session: id, Incarnation: incarnation})
	require.Equal(t, Done, open("bob").Code)
	require.Equal(t, "bob", m.SessionInfo(id).User)
}
