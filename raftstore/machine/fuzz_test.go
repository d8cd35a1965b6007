package machine

import (
	"bytes"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease"
)

// everyCommand has each command at least once, and leaves a machine with
// holders, waiters, slots, a set, a delay and policies behind.
func everyCommand() []Command {
	id := lease.SessionID{9}
	return append(append([]Command{
		&EndSessions{Above: 1},
		&OpenSession{Session: id, TTL: time.Second, Numbered: true},
	}, everyCommandOfVersion1()...),
		&Acquire{Session: id, Incarnation: 1<<32 + 2, Request: lease.Request{Nonce: 1, Resources: []fencing.Resource{"z"}}},
		&Release{Session: id, Incarnation: 1<<32 + 2, Nonce: 2},
		&Expire{Session: id, Incarnation: 1, Generation: 1},
		&CloseSession{Session: id, Incarnation: 2},
	)
}

// golden is bytes that an earlier version of this program has written.
func golden(t require.TestingT, name string) []byte {
	text, err := os.ReadFile(filepath.Join("testdata", name))
	require.NoError(t, err)
	data, err := hex.DecodeString(strings.TrimSpace(string(text)))
	require.NoError(t, err)
	return data
}

// everyCommandOfVersion1 is what entry.v1.hex holds: it must stay as it is.
func everyCommandOfVersion1() []Command {
	ann, bob := lease.SessionID{1}, lease.SessionID{2}
	ask := func(id lease.SessionID, nonce lease.Nonce, kind lease.Kind, names ...fencing.Resource) *Acquire {
		q := lease.Request{Nonce: nonce, Kind: kind, Resources: names, Wait: true, Holder: "h"}
		if kind == lease.Permit {
			q.Permits = 2
		}
		return &Acquire{Session: id, Request: q}
	}
	labelled := ask(bob, 5, lease.Exclusive, "e")
	labelled.Request.Metadata = map[string]string{"k": "v", "l": ""}
	labelled.Request.Mode = lease.Correctness
	labelled.Request.Wait = false
	return []Command{
		&Lead{},
		&OpenSession{Session: ann, TTL: time.Second},
		&OpenSession{Session: bob, TTL: lease.MaxTTL},
		&OpenSession{Session: lease.SessionID{3}, TTL: lease.MinTTL},
		&SetPolicy{Policy: lease.Policy{Prefix: "d", Mode: lease.Correctness, LockDelay: time.Second}},
		&SetPolicy{Policy: lease.Policy{Prefix: "dd", Mode: lease.Efficiency, TTL: time.Second, Renew: time.Millisecond, Drift: 1}, Version: 1},
		&SetPolicy{Policy: lease.Policy{Prefix: "x", Mode: lease.Efficiency}},
		&DeletePolicy{Prefix: "x", Version: 3},
		ask(ann, 1, lease.Exclusive, "a"), ask(bob, 1, lease.Shared, "a", "b", "c"), ask(ann, 2, lease.Exclusive, "a"),
		ask(ann, 3, lease.Permit, "p"), ask(bob, 2, lease.Permit, "p"), ask(bob, 3, lease.Permit, "p"),
		ask(ann, 9, lease.Exclusive, "d1"), ask(bob, 4, lease.Exclusive, "d1"), labelled,
		&Break{Resource: "d1", Token: 4},
		&EndDelay{Resource: "d1", Delay: 99, Generation: 1},
		&Release{Session: ann, Nonce: 5}, &Release{Session: ann, Nonce: 7}, &Release{Session: ann, Nonce: 1 << 63},
		&Expire{Session: lease.SessionID{3}, Generation: 1},
		&CloseSession{Session: lease.SessionID{4}},
		&RaiseFloor{By: 1 << 32},
	}
}

// played is the machine after these commands.
func played(t require.TestingT, commands ...Command) *Machine {
	m := New()
	for _, c := range commands {
		require.NoError(t, Validate(c))
		m.Apply(c)
		require.NoError(t, m.check())
	}
	return m
}

// FuzzDecode: whatever Decode accepts encodes to the same bytes but for the
// version, and can be applied to a machine in use without breaking an invariant.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(nil))
	f.Add(Encode())
	f.Add(Encode(everyCommand()...))
	for _, c := range everyCommand() {
		f.Add(Encode(c))
	}
	f.Add(append(Encode(&Lead{}), 0))
	f.Add([]byte{commandVersion + 1, 0})
	f.Add(golden(f, "entry.v1.hex"))
	f.Add([]byte{commandVersion, 0x81, 0x00}) // a number that is longer than it must be
	used := played(f, everyCommand()...).Snapshot()
	f.Fuzz(func(t *testing.T, data []byte) {
		commands, err := Decode(data)
		if err != nil {
			require.ErrorIs(t, err, ErrMalformed)
			return
		}
		again := Encode(commands...)
		again[0] = data[0] // what is of version 1 is written as version 2, and is the same otherwise
		require.True(t, bytes.Equal(data, again), "encodes to other bytes")
		m, err := Restore(used)
		require.NoError(t, err)
		for _, c := range commands {
			before := m.LastToken()
			m.Apply(c)
			require.NoError(t, m.check())
			require.GreaterOrEqual(t, m.LastToken(), before)
		}
		sameAfterRestore(t, m)
	})
}

// FuzzRestore: whatever Restore accepts is a machine that can be in use: it
// writes the same snapshot, and when all its sessions end nothing is left.
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
	f.Add(golden(f, "snapshot.v1.hex"))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := Restore(data)
		if err != nil {
			require.ErrorIs(t, err, ErrMalformed)
			return
		}
		require.True(t, data[0] == 1 || bytes.Equal(data, m.Snapshot()), "writes another snapshot")
		sameAfterRestore(t, m)
		m.Apply(&Lead{})
		for _, id := range m.sessionIDs() {
			incarnation := m.Standing(id).Incarnation
			m.Apply(&Acquire{Session: id, Incarnation: incarnation, Request: lease.Request{Nonce: 1, Resources: []fencing.Resource{"a", "b"}, Wait: true}})
			require.NoError(t, m.check())
			m.Apply(&Expire{Session: id, Incarnation: incarnation, Generation: m.Generation()})
			require.NoError(t, m.check())
		}
		for _, d := range m.Delays() {
			m.Apply(&EndDelay{Resource: d.Resources[0], Delay: d.DelayID, Generation: m.Generation()})
		}
		require.Empty(t, m.sessions)
		require.Empty(t, m.locks)
	})
}

// sameAfterRestore checks that the snapshot has all of the state: the locks
// that Restore builds anew are those that the machine had.
func sameAfterRestore(t require.TestingT, m *Machine) {
	other, err := Restore(m.Snapshot())
	require.NoError(t, err)
	require.Equal(t, sortedKeys(m.locks), sortedKeys(other.locks))
	for name := range m.locks {
		require.Equal(t, m.Inspect(name), other.Inspect(name))
	}
}

// FuzzSpans holds spans against a map.
func FuzzSpans(f *testing.F) {
	f.Add([]byte{1, 3, 2, 2, 9, 8, 7, 1})
	f.Add([]byte{255, 254, 0, 253, 1, 255})
	f.Add([]byte{10, 12, 14, 13, 11})
	f.Fuzz(func(t *testing.T, numbers []byte) {
		var s spans
		have := map[uint64]bool{}
		number := func(b byte) uint64 { // the smallest and the largest there are
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

// impossible is snapshots, well formed, of states that no machine can be in.
func impossible(t require.TestingT) map[string][]byte {
	broken := map[string][]byte{}
	add := func(name string, breakIt func(m *Machine)) {
		m := played(t, everyCommand()...)
		breakIt(m)
		broken[name] = m.Snapshot()
	}
	ann, bob := lease.SessionID{1}, lease.SessionID{2}
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
	add("slot of a writer", func(m *Machine) { holder(m).slot = 1 })
	add("two writers", func(m *Machine) { m.lastToken++; m.sessions[ann].requests[2].token = m.lastToken })
	add("a reader beside a writer", func(m *Machine) { m.lastToken++; m.sessions[bob].requests[1].token = m.lastToken })
	add("a waiter that could be granted", func(m *Machine) { delete(m.sessions[ann].requests, 1) })
	add("ended and live", func(m *Machine) { m.sessions[ann].ended.add(1) })
	add("ended attempts overlap", func(m *Machine) { m.sessions[ann].ended = spans{{5, 8}, {8, 9}} })
	add("ended attempts touch", func(m *Machine) { m.sessions[ann].ended = spans{{5, 8}, {9, 9}} })
	add("ended attempts not in order", func(m *Machine) { m.sessions[ann].ended = spans{{50, 51}, {5, 8}} })
	add("ended attempts after the last number", func(m *Machine) { m.sessions[ann].ended = spans{{50, ^uint64(0)}, {5, 8}} })
	add("ended attempt 0", func(m *Machine) { m.sessions[ann].ended = spans{{0, 0}} })
	add("incarnation above the last order", func(m *Machine) { m.sessions[ann].incarnation = m.order + 1 })
	add("incarnation with the number of a request", func(m *Machine) { m.sessions[ann].incarnation = m.sessions[bob].requests[1].order })
	add("incarnation twice", func(m *Machine) { m.sessions[ann].incarnation = m.sessions[lease.SessionID{9}].incarnation })
	add("session without time", func(m *Machine) { m.sessions[ann].ttlNanos = 0 })
	add("delay above the last order", func(m *Machine) { m.locks["d1"].delay = m.order + 1 })
	add("delay with the number of a request", func(m *Machine) { m.locks["d1"].delay = holder(m).order })
	add("last token above the largest", func(m *Machine) { m.lastToken = fencing.MaxToken + 1 })
	add("order is used up", func(m *Machine) { m.order = ^uint64(0) })
	add("policy without a mode", func(m *Machine) { m.policies = m.policies.With(lease.Policy{Prefix: "q"}) })
	add("set of two modes", func(m *Machine) {
		m.policies = m.policies.With(lease.Policy{Prefix: "b", Mode: lease.Efficiency})
	})
	add("request that is not valid", func(m *Machine) { holder(m).resources = []fencing.Resource{"a", "a"} })
	add("nonce 0", func(m *Machine) { holder(m).nonce = 0 })

	// Two that Snapshot cannot be made to write.
	m := played(t, everyCommand()...)
	m.Apply(&EndDelay{Resource: "d1", Delay: m.locks["d1"].delay, Generation: 1})
	snapshot := m.Snapshot() // ends with the number of delays
	broken["delay 0 of a lock in use"] = append(snapshot[:len(snapshot)-1], 1, 1, 'a', 0)
	broken["later version"] = []byte{snapshotVersion + 1}
	return broken
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

// TestDecodeRefusesCuts: no part of an encoding is an encoding.
func TestDecodeRefusesCuts(t *testing.T) {
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
