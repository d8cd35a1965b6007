package raftstore

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/logstore"
	"github.com/leased-project/leased/raftstore/machine"
)

// BenchmarkGrantGap measures how long a client gets no grant while many leases of others end,
// and while a snapshot is taken. The client acquires and releases one lock all the time.
// before-gap-ms is its longest wait before that. Three nodes on real disks and loopback TCP
// share one process.
//
//	go test -run '^$' -bench GrantGap -benchtime 1x -timeout 30m ./raftstore
func BenchmarkGrantGap(b *testing.B) {
	const leases = 100_000
	for name, c := range map[string]struct {
		sessions int
		end      func(f *filled)
		expires  bool
	}{
		"holder-expires":    {1, (*filled).ended, true},
		"holder-closes":     {1, (*filled).close, false},
		"sessions-expire":   {leases, (*filled).ended, true},
		"sessions-snapshot": {leases, (*filled).snapshot, false},
	} {
		b.Run(fmt.Sprintf("%s/leases=%d", name, leases), func(b *testing.B) {
			for b.Loop() {
				f := fillCluster(b, leases, c.sessions)
				gaps := f.probe(func() { f.wait(2 * time.Second) })
				b.ReportMetric(float64(slices.Max(gaps).Microseconds())/1000, "before-gap-ms")
				if c.expires {
					f.wait(stopwatch.Now().Until(f.deadline) - 100*time.Millisecond)
				}
				began := stopwatch.Now()
				gaps = f.probe(func() { c.end(f) })
				b.ReportMetric(float64(slices.Max(gaps).Microseconds())/1000, "gap-ms")
				b.ReportMetric(stopwatch.Now().Since(began).Seconds(), "took-s")
				b.ReportMetric(float64(len(gaps))/stopwatch.Now().Since(began).Seconds(), "grants/s")
			}
		})
	}
}

// fillTTL is long enough to fill the cluster.
const fillTTL = 25 * time.Second

// filled is a cluster in which sessions hold leases.
type filled struct {
	b        *testing.B
	node     *Node // the leader
	backend  *Backend
	sessions []machine.SessionInfo
	ids      []engine.SessionID
	leases   int
	deadline engine.Instant // of all sessions
}

// fillCluster opens sessions that share the leases evenly.
func fillCluster(b *testing.B, leases, sessions int) *filled {
	c := startTCP(b, 3, logstore.WAL, slowTimeouts)
	f := &filled{b: b, node: c.leader(), backend: c.backend(), leases: leases}
	var commands []machine.Command
	for range sessions {
		f.ids = append(f.ids, engine.NewSessionID())
		commands = append(commands, &machine.OpenSession{Session: f.ids[len(f.ids)-1], TTL: fillTTL})
	}
	for _, r := range f.commit(commands) {
		f.sessions = append(f.sessions, machine.SessionInfo{TTL: fillTTL, Incarnation: r.Incarnation})
	}
	commands = nil
	for i := range leases {
		commands = append(commands, &machine.Acquire{Session: f.ids[i%sessions],
			Incarnation: f.sessions[i%sessions].Incarnation, Request: engine.Request{
				Nonce: engine.Nonce(i + 1), Resources: []fencing.Resource{fencing.Resource(fmt.Sprintf("jobs/%07d", i))},
				Mode: engine.Correctness, Holder: "worker"}})
	}
	f.commit(commands)
	t := f.node.leading.Load()
	now := f.node.config.Clock.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, id := range f.ids {
		require.True(b, t.lessor.Renew(now, id, f.sessions[i].Incarnation, 0))
	}
	f.deadline = stopwatch.Now().Add(fillTTL)
	return f
}

// commit commits commands, some thousands at a time.
func (f *filled) commit(commands []machine.Command) (results []machine.Result) {
	term := f.node.leading.Load()
	for part := range slices.Chunk(commands, 4000) {
		var replies []reply
		for _, c := range part {
			replies = append(replies, make(reply, 1))
			require.NoError(f.b, f.node.committer.enqueue(term, c, replies[len(replies)-1]))
		}
		f.node.committer.wakeUp()
		for _, r := range replies {
			out := <-r
			require.NoError(f.b, out.err)
			results = append(results, out.result)
		}
	}
	return results
}

// probe acquires and releases a lock until do returns, and returns the times between grants.
func (f *filled) probe(do func()) (gaps []time.Duration) {
	ctx := context.Background()
	s, err := f.backend.Open(ctx, engine.SessionConfig{ID: engine.NewSessionID(), TTL: time.Hour,
		Clock: engine.SystemClock()})
	require.NoError(f.b, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		do()
	}()
	last := stopwatch.Now()
	for nonce := engine.Nonce(1); ; nonce++ {
		select {
		case <-done:
			return gaps
		default:
		}
		_, err := s.Acquire(ctx, engine.Request{Nonce: nonce, Resources: []fencing.Resource{"probe"}, Wait: true,
			Holder: "probe"})
		require.NoError(f.b, err)
		now := stopwatch.Now()
		gaps, last = append(gaps, now.Since(last)), now
		require.NoError(f.b, s.Release(ctx, engine.Held{Nonce: nonce}))
	}
}

func (f *filled) wait(d time.Duration) { <-time.After(d) }

// close ends the session as its client does.
func (f *filled) close() {
	s := &Session{backend: f.backend, config: engine.SessionConfig{ID: f.ids[0]}, number: f.sessions[0].Incarnation}
	require.NoError(f.b, s.Close(context.Background()))
	f.ended()
}

func (f *filled) snapshot() { require.NoError(f.b, f.node.raft.Snapshot().Error()) }

// ended waits until all leases have ended.
func (f *filled) ended() {
	for left := f.leases; left > 1; f.wait(10 * time.Millisecond) {
		f.node.fsm.Read(func(m *machine.Machine) { left = m.Count().Holders })
	}
}
