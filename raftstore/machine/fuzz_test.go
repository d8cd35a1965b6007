package machine

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

// everyCommand contains each command at least once. Applied, it leaves a machine with holders,
// waiters, slots, a set, a delay, policies, migrations and a fleet.
func everyCommand() []Command {
	ann, bob, eve := engine.SessionID{1}, engine.SessionID{2}, engine.SessionID{3}
	const first = 1<<32 + 2 // the first incarnation after EndSessions
	const danFirst = first + 16
	dan := engine.SessionID{9}
	asDan := func(a *Acquire) Command { return as(danFirst, a) }
	ask := func(id engine.SessionID, nonce engine.Nonce, kind engine.Kind, names ...fencing.Resource) *Acquire {
		q := engine.Request{Nonce: nonce, Kind: kind, Resources: names, Wait: true, Holder: "h"}
		if kind == engine.Permit {
			q.Permits = 2
		}
		return &Acquire{Session: id, Incarnation: first + uint64(id[0]) - 1, Request: q}
	}
	labelled := ask(bob, 5, engine.Exclusive, "e")
	labelled.Request.Metadata = map[string]string{"k": "v", "l": ""}
	labelled.Request.Mode = engine.Correctness
	labelled.Request.Wait = false
	commands := []Command{
		&EndSessions{Above: 1},
		&Lead{},
		&OpenSession{Session: ann, TTL: time.Second},
		&OpenSession{Session: bob, TTL: engine.MaxTTL},
		&OpenSession{Session: eve, TTL: engine.MinTTL},
		&SetPolicy{Policy: engine.Policy{Prefix: "d", Mode: engine.Correctness, LockDelay: time.Second}},
		ask(ann, 1, engine.Exclusive, "a"), ask(bob, 1, engine.Shared, "a", "b", "c"), ask(ann, 2, engine.Exclusive, "a"),
		ask(ann, 3, engine.Permit, "p"), ask(bob, 2, engine.Permit, "p"), ask(bob, 3, engine.Permit, "p"),
		ask(ann, 9, engine.Exclusive, "d1"), ask(bob, 4, engine.Exclusive, "d1"), labelled,
		ask(eve, 1, engine.Exclusive, "z"), ask(ann, 10, engine.Exclusive, "m1"), ask(bob, 10, engine.Exclusive, "m1"),
		&Break{Resource: "d1", Token: 4},
		&EndDelay{Resource: "d1", Delay: 99, Generation: 1},
		&Release{Session: ann, Incarnation: first, Nonce: 5}, &Release{Session: ann, Incarnation: first, Nonce: 7},
		&Release{Session: ann, Incarnation: first, Nonce: 1 << 63},
		&Update{Session: bob, Incarnation: first + 1, Nonce: 5, TTL: time.Minute, Metadata: map[string]string{"k": "w"}},
		&Expire{Session: engine.SessionID{3}, Incarnation: 1, Generation: 1},
		&CloseSession{Session: engine.SessionID{4}},
		&EndRequests{Max: 1},
		&OpenSession{Session: dan, TTL: time.Second, User: "dan"}, // it has ended, and its requests have not
		asDan(&Acquire{Session: dan, Request: engine.Request{Nonce: 1, Resources: []fencing.Resource{"z"}, Wait: true}}),
		asDan(&Acquire{Session: dan, Request: engine.Request{Nonce: 2, Resources: []fencing.Resource{"y"}, Wait: true}}),
		&CloseSession{Session: dan, Incarnation: danFirst},
		&RaiseFloor{By: 1 << 32},
	}
	return append(commands, everyTopologyCommand()...)
}

// everyTopologyCommand is the part of everyCommand that changes the topology.
func everyTopologyCommand() []Command {
	fleet := engine.Fleet{Namespace: "n", Addresses: []string{"c:1", "a:1", "b:1"}, MaxTTL: time.Minute}
	next := engine.Fleet{Namespace: "n", Addresses: []string{"d:1"}, MaxTTL: time.Minute}
	return []Command{
		&SetFleet{Fleet: fleet, Version: 1},
		&Reconcile{Version: 3, Ceiling: 5},
		&NameLife{Member: "b:1", Life: "b.j"},
		&NameLife{Member: "a:1", Life: "a.j"},
		&RaiseCeiling{To: 6},
		&FinishReconcile{Version: 4},
		&SetPolicy{Policy: engine.Policy{Prefix: "f", Mode: engine.Efficiency, TTL: time.Second, Renew: time.Millisecond,
			Drift: 1}, Version: 7},
		&FinishMigration{Prefix: "f", Version: 8},
		&DeletePolicy{Prefix: "f", Version: 9, Now: true},
		&SetPolicy{Policy: engine.Policy{Prefix: "m", Mode: engine.Efficiency}},
		&SetPolicy{Policy: engine.Policy{Prefix: "x", Mode: engine.Efficiency}},
		&AbortMigration{Prefix: "x"},
		&NameLife{Member: "c:1", Life: "c.j"},
		&NameLife{Member: "c:1", Life: "c.k"},
		&CloseSets{Version: 1, Granted: 3},
		&FinishRecovery{Member: "b:1", Life: "b.j"},
		&SetFleet{Fleet: next, Now: true, Force: true},
		&FinishFleet{Version: 1},
		&MarkRestored{Version: 20, Ceiling: 7},
		&SetMemberAPI{ID: "n1", Address: "n1:8400"}, &SetMemberAPI{ID: "n2", Address: "n2:8400"}, &SetMemberAPI{ID: "n2"},
	}
}

// played returns a machine that has applied these commands.
func played(t require.TestingT, commands ...Command) *Machine {
	m := New()
	for _, c := range commands {
		require.NoError(t, Validate(c))
		m.Apply(c)
		require.NoError(t, m.check())
	}
	return m
}

// FuzzDecode checks that everything that Decode accepts encodes to the same bytes, and can be
// applied to a machine in use without breaking an invariant.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(nil))
	f.Add(Encode())
	f.Add(Encode(everyCommand()...))
	for _, c := range everyCommand() {
		f.Add(Encode(c))
	}
	f.Add(append(Encode(&Lead{}), 0))
	f.Add([]byte{CommandVersion + 1, 0})
	f.Add([]byte{CommandVersion, 0x81, 0x00}) // a number with a longer encoding than necessary
	used := played(f, everyCommand()...).Snapshot()
	f.Fuzz(func(t *testing.T, data []byte) {
		commands, err := Decode(data)
		if err != nil {
			requireRefused(t, err)
			return
		}
		require.True(t, bytes.Equal(data, Encode(commands...)), "encodes to other bytes")
		m, err := Restore(used)
		require.NoError(t, err)
		for _, c := range commands {
			token, ceiling, version := m.LastToken(), m.Ceiling(), m.Version()
			m.Apply(c)
			require.NoError(t, m.check())
			require.GreaterOrEqual(t, m.LastToken(), token)
			require.GreaterOrEqual(t, m.Ceiling(), ceiling)
			require.GreaterOrEqual(t, m.Version(), version)
		}
		sameAfterRestore(t, m)
	})
}

// FuzzRestore checks that everything that Restore accepts is a valid machine: it has the same
// snapshot, and no locks are left when all its sessions end.
func FuzzRestore(f *testing.F) {
	f.Add([]byte(nil))
	f.Add(New().Snapshot())
	commands := everyCommand()
	for i := range commands {
		f.Add(played(f, commands[:i]...).Snapshot())
	}
	for _, broken := range impossible(f) {
		f.Add(broken)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := Restore(data)
		if err != nil {
			requireRefused(t, err)
			return
		}
		require.True(t, bytes.Equal(data, m.Snapshot()), "writes another snapshot")
		sameAfterRestore(t, m)
		m.Apply(&Lead{})
		for _, id := range m.sessionIDs() {
			incarnation := m.SessionInfo(id).Incarnation
			m.Apply(&Acquire{Session: id, Incarnation: incarnation, Request: engine.Request{Nonce: 1,
				Resources: []fencing.Resource{"a", "b"}, Wait: true}})
			require.NoError(t, m.check())
			m.Apply(&Expire{Session: id, Incarnation: incarnation, Generation: m.Generation()})
			require.NoError(t, m.check())
		}
		for m.HasEnding() {
			m.Apply(&EndRequests{Max: 2})
			require.NoError(t, m.check())
		}
		delays, _ := m.Delays(AllDelays, AllDelays)
		for _, d := range delays {
			m.Apply(&EndDelay{Resource: d.Resources[0], Delay: d.DelayID, Generation: m.Generation()})
		}
		require.Empty(t, m.sessions)
		require.Empty(t, m.locks)
	})
}

// sameAfterRestore checks that the snapshot contains the whole state: the locks that Restore
// rebuilds are those of the machine.
func sameAfterRestore(t require.TestingT, m *Machine) {
	other, err := Restore(m.Snapshot())
	require.NoError(t, err)
	require.Equal(t, sortedKeys(m.locks), sortedKeys(other.locks))
	for name := range m.locks {
		require.Equal(t, m.Inspect(name), other.Inspect(name))
	}
	require.Equal(t, m.Efficiency(), other.Efficiency())
	require.Equal(t, m.Topology(), other.Topology())
	require.Equal(t, m.memberAPI, other.memberAPI)
}

// FuzzSpans compares spans with a map.
func FuzzSpans(f *testing.F) {
	f.Add([]byte{1, 3, 2, 2, 9, 8, 7, 1})
	f.Add([]byte{255, 254, 0, 253, 1, 255})
	f.Add([]byte{10, 12, 14, 13, 11})
	f.Fuzz(func(t *testing.T, numbers []byte) {
		var s spans
		have := map[uint64]bool{}
		number := func(b byte) uint64 { // the smallest and the largest numbers
			if b >= 128 {
				return ^uint64(0) - uint64(255-b)
			}
			return uint64(b) + 1
		}
		for _, b := range numbers {
			s.add(number(b))
			have[number(b)] = true
		}
		total := uint64(0)
		for i, x := range s {
			total += x.hi - x.lo + 1
			if x.lo > x.hi || i > 0 && s[i-1].hi >= x.lo-1 {
				t.Fatalf("spans overlap or touch: %v", s)
			}
		}
		require.Equal(t, uint64(len(have)), total)
		for b := range 256 {
			if n := number(byte(b)); have[n] != s.has(n) {
				t.Fatalf("%d is in %v: %v", n, s, s.has(n))
			}
		}
		require.False(t, s.has(0) || s.has(1000))
	})
}

// impossible returns well-formed snapshots of invalid states.
func impossible(t require.TestingT) map[string][]byte {
	broken := map[string][]byte{}
	add := func(name string, breakIt func(m *Machine)) {
		m := played(t, everyCommand()...)
		breakIt(m)
		broken[name] = m.Snapshot()
	}
	ann, bob := engine.SessionID{1}, engine.SessionID{2}
	holder := func(m *Machine) *request { return m.sessions[ann].requests[1] }
	add("token above the last", func(m *Machine) { holder(m).token = m.lastToken + 1 })
	add("token twice", func(m *Machine) { holder(m).token = m.sessions[ann].requests[3].token })
	add("order above the last", func(m *Machine) { m.sessions[ann].requests[2].order = m.order + 1 })
	add("order twice", func(m *Machine) { m.sessions[ann].requests[2].order = m.sessions[bob].requests[1].order })
	add("order is 0", func(m *Machine) { holder(m).order = 0 })
	add("waiter with a slot", func(m *Machine) { m.sessions[bob].requests[3].slot = 1 })
	add("permit without a slot", func(m *Machine) { m.sessions[bob].requests[2].slot = 0 })
	add("slot twice", func(m *Machine) { m.sessions[bob].requests[2].slot = 1 })
	add("slot above the permits", func(m *Machine) { m.sessions[bob].requests[2].slot = 3 })
	add("another number of permits", func(m *Machine) { m.sessions[bob].requests[3].permits = 3 })
	add("slot of a writer", func(m *Machine) { holder(m).slot = 1 })
	add("two writers", func(m *Machine) { m.lastToken++; m.sessions[ann].requests[2].token = m.lastToken })
	add("a reader beside a writer", func(m *Machine) { m.lastToken++; m.sessions[bob].requests[1].token = m.lastToken })
	add("a waiter that could be granted", func(m *Machine) { m.detach(holder(m)) })
	add("ended and live", func(m *Machine) { m.sessions[ann].ended.add(1) })
	add("ended attempts overlap", func(m *Machine) { m.sessions[ann].ended = spans{{5, 8}, {8, 9}} })
	add("ended attempts touch", func(m *Machine) { m.sessions[ann].ended = spans{{5, 8}, {9, 9}} })
	add("ended attempts not in order", func(m *Machine) { m.sessions[ann].ended = spans{{50, 51}, {5, 8}} })
	add("ended attempts after the last number", func(m *Machine) {
		m.sessions[ann].ended = spans{{50, ^uint64(0)}, {5, 8}}
	})
	add("ended attempts that are forgotten", func(m *Machine) {
		m.sessions[ann].ended, m.sessions[ann].forgotten = spans{{50, 51}}, 50
	})
	add("ended attempt 0", func(m *Machine) { m.sessions[ann].ended = spans{{0, 0}} })
	add("incarnation above the last order", func(m *Machine) { m.sessions[ann].incarnation = m.order + 1 })
	add("incarnation with the number of a request", func(m *Machine) {
		m.sessions[ann].incarnation = m.sessions[bob].requests[1].order
	})
	add("incarnation twice", func(m *Machine) { m.sessions[ann].incarnation = m.sessions[bob].incarnation })
	add("incarnation 0", func(m *Machine) { m.sessions[ann].incarnation = 0 })
	add("session without a TTL", func(m *Machine) { m.sessions[ann].ttl = 0 })
	add("delay above the last order", func(m *Machine) { m.locks["d1"].delay.number = m.order + 1 })
	add("delay with the number of a request", func(m *Machine) { m.locks["d1"].delay.number = holder(m).order })
	add("two delays with one number", func(m *Machine) { m.setDelay("d2", m.lock("d2"), m.locks["d1"].delay.number) })
	ending := func(m *Machine) *session { return m.ending.queue[0] }
	add("session that ends without a reason", func(m *Machine) { ending(m).how = 0 })
	add("session that ends with another event", func(m *Machine) { ending(m).how = EventBroken })
	add("ended session with ended attempts", func(m *Machine) { ending(m).ended.add(7) })
	add("ended session with forgotten attempts", func(m *Machine) { ending(m).forgotten = 7 })
	add("ended session of an invalid user", func(m *Machine) { ending(m).user = "\n" })
	add("ended session with the incarnation of an open one", func(m *Machine) {
		ending(m).incarnation = m.sessions[ann].incarnation
	})
	add("last token above the largest", func(m *Machine) { m.lastToken = fencing.MaxToken + 1 })
	add("order is used up", func(m *Machine) { m.order = ^uint64(0) })
	add("policy without a mode", func(m *Machine) { m.policies = m.policies.With(engine.Policy{Prefix: "q"}) })
	add("lock in use in efficiency mode", func(m *Machine) {
		m.policies = m.policies.With(engine.Policy{Prefix: "b", Mode: engine.Efficiency})
	})
	add("delay in efficiency mode", func(m *Machine) {
		m.policies = m.policies.With(engine.Policy{Prefix: "d1", Mode: engine.Efficiency})
	})
	add("waiter for a lock in a migration", func(m *Machine) {
		m.policies = m.policies.With(engine.Policy{Prefix: "a", Mode: engine.Correctness, Next: engine.Efficiency})
		m.migrations["a"] = &migration{version: 1, target: engine.Policy{Prefix: "a", Mode: engine.Efficiency}}
	})
	addTopology(add)
	add("invalid request", func(m *Machine) { holder(m).resources = []fencing.Resource{"a", "a"} })
	add("nonce 0", func(m *Machine) { holder(m).nonce = 0 })

	// Two snapshots that Snapshot cannot create.
	m := played(t, everyCommand()...)
	m.Apply(&EndDelay{Resource: "d1", Delay: m.locks["d1"].delay.number, Generation: 1})
	m.Apply(&EndRequests{Max: MaxEndRequests})
	snapshot := m.Snapshot() // ends with the number of delays and of ended sessions
	broken["delay 0 of a lock in use"] = append(snapshot[:len(snapshot)-2], 1, 1, 'a', 0, 0)
	return broken
}

// addTopology adds invalid topologies. The locks of "m" migrate from correctness to efficiency,
// those of "f" from efficiency to correctness.
func addTopology(add func(name string, breakIt func(m *Machine))) {
	add("migration without a policy", func(m *Machine) { m.migrations["q"] = m.migrations["m"] })
	add("migrating policy without a migration", func(m *Machine) { delete(m.migrations, "m") })
	add("migration to the same mode", func(m *Machine) {
		m.policies = m.policies.With(engine.Policy{Prefix: "m", Mode: engine.Correctness, Next: engine.Correctness})
	})
	add("migration of a later version", func(m *Machine) { m.migrations["m"].version = m.version + 1 })
	add("migration of version 0", func(m *Machine) { m.migrations["m"].version = 0 })
	add("migration to a policy of another mode", func(m *Machine) { m.migrations["m"].target.Mode = engine.Correctness })
	add("migration to a policy of another prefix", func(m *Machine) { m.migrations["m"].target.Prefix = "n" })
	add("migration to a migrating policy", func(m *Machine) { m.migrations["m"].target.Next = engine.Correctness })
	add("migration from a policy of another mode", func(m *Machine) { m.migrations["f"].before.Mode = engine.Correctness })
	add("migration that deletes nothing", func(m *Machine) { m.migrations["f"].existed = false })
	add("fleet of two", func(m *Machine) { m.fleet.Addresses = m.fleet.Addresses[:2] })
	add("next fleet is the current one", func(m *Machine) { m.nextFleet = m.fleet })
	add("next fleet of a later version", func(m *Machine) { m.nextVersion = m.version + 1 })
	add("next fleet of two", func(m *Machine) { m.nextFleet.Addresses = []string{"a:1", "b:1"} })
	add("no fleet with a namespace", func(m *Machine) { m.nextFleet.Addresses = nil })
	add("floor above the ceiling", func(m *Machine) { m.floor = m.ceiling + 1 })
	add("ceiling above the largest token", func(m *Machine) { m.ceiling = fencing.MaxToken + 1 })
	add("ready and restored", func(m *Machine) { m.ready = true })
	add("ready and not reconciled", func(m *Machine) { m.ready, m.restored = true, false })
	add("reconciled with a later version", func(m *Machine) { m.reconciled = m.version + 1 })
	add("restored and fresh", func(m *Machine) { m.used = false })
	add("a fleet, and rolled back without one", func(m *Machine) { m.forgotten = true })
	add("fleet that was not set", func(m *Machine) { m.fleetSet = false })
	add("member without an address", func(m *Machine) { m.memberAPI["n3"] = "" })
	add("member without an ID", func(m *Machine) { m.memberAPI[""] = "n3:8400" })
}

func TestRestoreRefusesImpossibleStates(t *testing.T) {
	_, err := Restore(played(t, everyCommand()...).Snapshot())
	require.NoError(t, err)
	for name, data := range impossible(t) {
		t.Run(name, func(t *testing.T) {
			_, err := Restore(data)
			require.ErrorIs(t, err, ErrMalformed)
		})
	}
}

// TestDecodeRefusesTruncatedInput checks that no proper prefix of an encoding is accepted.
func TestDecodeRefusesTruncatedInput(t *testing.T) {
	entry := Encode(everyCommand()...)
	for n := range entry {
		_, err := Decode(entry[:n])
		require.ErrorIs(t, err, ErrMalformed, "%d of %d bytes", n, len(entry))
	}
	snapshot := played(t, everyCommand()...).Snapshot()
	for n := range snapshot {
		_, err := Restore(snapshot[:n])
		require.ErrorIs(t, err, ErrMalformed, "%d of %d bytes", n, len(snapshot))
	}
}

// requireRefused fails unless err says that bytes are malformed, or of a newer build.
func requireRefused(t *testing.T, err error) {
	t.Helper()
	if newer := (*engine.FormatError)(nil); !errors.As(err, &newer) {
		require.ErrorIs(t, err, ErrMalformed)
	}
}
