package sim

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/raftstore/machine"
)

// These are facts that the simulator stumbled on, and lives with. Whoever
// changes them may take out what it does about them.

func held(t *testing.T) (*machine.Machine, lease.SessionID, *machine.OpenSession) {
	t.Helper()
	m, id := machine.New(), lease.SessionID{1}
	open := &machine.OpenSession{Session: id, TTL: time.Second}
	m.Apply(&machine.Lead{})
	m.Apply(open)
	result, _ := m.Apply(&machine.Acquire{Session: id, Request: lease.Request{Nonce: 1, Resources: []resource{"a"}, Kind: lease.Exclusive, Wait: true}})
	require.Equal(t, machine.Granted, result.Code)
	return m, id, open
}

// A session that has expired is opened again by a late copy of the request. Its
// client can renew it, and is not told that what it held is gone. So a service
// must open nothing for who has hung up; the simulated one does not.
func TestKnownALateOpenHidesAnExpiry(t *testing.T) {
	m, id, open := held(t)
	m.Apply(&machine.Expire{Session: id, Generation: 1})
	m.Apply(open)
	require.Contains(t, m.SessionTTLs(), id, "a renewal finds it")
	require.Equal(t, machine.Ended, m.Attempt(id, 1).Code, "and nothing in it")
}

// A restore brings a lease back that was released since the backup. While its
// session is renewed nobody else gets the lock: its client will not release it
// again. So the simulated operator breaks what nobody claims.
func TestKnownARestoreBringsBackWhatWasReleased(t *testing.T) {
	m, id, _ := held(t)
	backup := m.Snapshot()
	m.Apply(&machine.Release{Session: id, Nonce: 1})
	restored, err := machine.Restore(backup)
	require.NoError(t, err)
	require.Len(t, restored.Inspect("a").Holders, 1)
}
