package machine

import (
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/golden"
	"github.com/leased-project/leased/lease/engine"
)

// goldenCommands returns the commands of the golden files: every operation, and every
// field with a value in at least one of them. Commands of later versions get files of
// their own.
func goldenCommands() []Command {
	ann, bob, eve := engine.SessionID{0xa}, engine.SessionID{0xb}, engine.SessionID{0xe}
	const annFirst, bobFirst, eveFirst = 1<<32 + 8, 1<<32 + 9, 1<<32 + 16 // the first incarnations after EndSessions
	const restored, reconciled = 20 + 1<<20, 21 + 2<<20                   // the versions of MarkRestored and Reconcile
	limits := Limits{SessionsPerUser: 1, LeasesPerUser: 200, WaitersPerUser: 300, WaitersPerLock: 4000}
	acquire := func(id engine.SessionID, incarnation uint64, q engine.Request) Command {
		return &Acquire{Session: id, Incarnation: incarnation, Request: q, Limits: Limits{LeasesPerUser: 200,
			WaitersPerUser: 300, WaitersPerLock: 4000}}
	}
	fleet := engine.Fleet{Namespace: "n", Addresses: []string{"c:1", "a:1", "b:1"}, MaxTTL: time.Minute}
	return []Command{
		&EndSessions{Above: 7},
		&Lead{},
		&OpenSession{Session: ann, TTL: time.Second, User: "ann@example.org",
			Limits: Limits{SessionsPerUser: limits.SessionsPerUser}},
		&OpenSession{Session: bob, TTL: engine.MaxTTL},
		&SetPolicy{Policy: engine.Policy{Prefix: "d", Mode: engine.Correctness, LockDelay: time.Second}},
		acquire(ann, annFirst, engine.Request{Nonce: 1, Resources: []fencing.Resource{"a"}, Holder: "host 1",
			Mode: engine.Correctness}),
		acquire(bob, bobFirst, engine.Request{Nonce: 1, Resources: []fencing.Resource{"a", "b"}, Kind: engine.Shared,
			Wait: true, Holder: "host 1"}),
		acquire(bob, bobFirst, engine.Request{Nonce: 2, Resources: []fencing.Resource{"p"}, Kind: engine.Permit, Permits: 300,
			Holder:   "host 2",
			Metadata: map[string]string{"k": "v", "l": ""}}),
		acquire(ann, annFirst, engine.Request{Nonce: 2, Resources: []fencing.Resource{"d1"}, Wait: true}),
		acquire(bob, bobFirst, engine.Request{Nonce: 1 << 60, Resources: []fencing.Resource{"d1"}, Wait: true}),
		&Break{Resource: "d1", Token: 3},
		&EndDelay{Resource: "d1", Delay: 99, Generation: 1},
		&Release{Session: ann, Incarnation: annFirst, Nonce: 5},
		&Update{Session: bob, Incarnation: bobFirst, Nonce: 2, TTL: time.Minute, Metadata: map[string]string{"k": "w"}},
		&Expire{Session: engine.SessionID{3}, Incarnation: 1, Generation: 1},
		&OpenSession{Session: eve, TTL: time.Second, User: "eve@example.org"},
		acquire(eve, eveFirst, engine.Request{Nonce: 1, Resources: []fencing.Resource{"a"}, Wait: true}),
		acquire(eve, eveFirst, engine.Request{Nonce: 2, Resources: []fencing.Resource{"e"}}),
		&EndRequests{Max: 500},
		&CloseSession{Session: eve, Incarnation: eveFirst},
		&RaiseFloor{By: 1 << 32},
		&MarkRestored{Version: 20, Ceiling: 7, Fleet: fleet, FleetSet: true},
		&SetFleet{Fleet: fleet, Version: restored},
		&Reconcile{At: restored, Version: 3, Ceiling: 5, Lives: []string{"", "a.j", ""}, Past: []string{"?", "a.j", ""}},
		&NameLife{Member: "b:1", Life: "b.j", Version: reconciled},
		&RaiseCeiling{To: 6},
		&FinishReconcile{Version: reconciled},
		&SetPolicy{Policy: engine.Policy{Prefix: "f", Mode: engine.Efficiency, TTL: time.Second, Renew: time.Millisecond,
			Drift: 1}, Version: reconciled + 2},
		&FinishMigration{Prefix: "f", Version: reconciled + 3, Granted: 4},
		&DeletePolicy{Prefix: "f", Version: reconciled + 4, Now: true},
		&SetPolicy{Policy: engine.Policy{Prefix: "x", Mode: engine.Efficiency}, Now: true},
		&AbortMigration{Prefix: "x"},
		&NameLife{Member: "a:1", Life: "a.k"},
		&CloseSets{Version: 1, Granted: 3},
		&FinishRecovery{Member: "b:1", Life: "b.j"},
		&SetFleet{Fleet: engine.Fleet{Namespace: "n", Addresses: []string{"d:1"}, MaxTTL: time.Minute}, Now: true,
			Force: true},
		&FinishFleet{Version: 1},
		&SetMemberAPI{ID: "n1", Address: "n1:8400"},
	}
}

// TestGoldenCommands checks that the commands of version 1 are read and written as they
// were.
func TestGoldenCommands(t *testing.T) {
	commands := goldenCommands()
	var text strings.Builder
	for _, c := range commands {
		fmt.Fprintf(&text, "%s %x\n", strings.TrimPrefix(fmt.Sprintf("%T", c), "*machine."), Encode(c))
	}
	used := map[string]bool{}
	for i, line := range strings.Split(strings.TrimSuffix(golden.Text(t, "commands.txt", text.String()), "\n"), "\n") {
		name, digits, _ := strings.Cut(line, " ")
		data, err := hex.DecodeString(digits)
		require.NoError(t, err)
		decoded, err := Decode(data)
		require.NoError(t, err, line)
		require.Equal(t, []Command{commands[i]}, decoded, name)
		require.Equal(t, data, Encode(decoded...), name)
		used[name] = true
	}
	require.Len(t, used, len(commandOf)-1, "every operation has a line")
}

// TestGoldenSnapshot checks that a snapshot of version 1 is read and written as it was, and
// that the commands lead to the same state.
func TestGoldenSnapshot(t *testing.T) {
	m := played(t, goldenCommands()...)
	data := golden.Hex(t, "snapshot.hex", m.Snapshot())
	restored, err := Restore(data)
	require.NoError(t, err)
	require.Equal(t, data, restored.Snapshot())
	require.Equal(t, Counts{Sessions: 2, Locks: 5, Holders: 3, Waiters: 3}, restored.Count())
	require.Equal(t, fencing.Token(5<<32+4), restored.LastToken())
	require.Equal(t, []string{"", "a.k", "b.j"}, restored.Topology().Lives)
	require.Len(t, restored.Efficiency().Open, 2)
	require.Equal(t, "host 1", restored.Inspect("a").Holders[0].Holder)
	require.Equal(t, "ann@example.org", restored.SessionInfo(engine.SessionID{0xa}).User)
}

// TestNewerFormatsAreRefused checks that a build that does not know a version says so.
func TestNewerFormatsAreRefused(t *testing.T) {
	entry := Encode(goldenCommands()...)
	snapshot := played(t, goldenCommands()...).Snapshot()
	entry[0]++
	snapshot[0]++
	_, err := Decode(entry)
	var newer *engine.FormatError
	require.ErrorAs(t, err, &newer)
	require.Equal(t, engine.FormatError{Format: "batch of commands", Found: 2, Newest: 1}, *newer)
	require.NotErrorIs(t, err, ErrMalformed)
	_, err = Restore(snapshot)
	require.ErrorAs(t, err, &newer)
	require.Equal(t, engine.FormatError{Format: "state of the machine", Found: 2, Newest: 1}, *newer)
	require.ErrorContains(t, err, "upgrade to a build that reads version 2")
}
