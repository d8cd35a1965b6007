package raftstore

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/machine"
	"github.com/leased-project/leased/raftstore/replica"
)

// BenchmarkScale reports what sessions with a lease each cost the leader, without their connections: docs/SCALE.md
// shows its figures. Times are processor time, except those of the longest step, for which the entries of other
// clients wait.
//
//	go test -run '^$' -bench Scale -benchtime 1x -timeout 30m ./raftstore
func BenchmarkScale(b *testing.B) {
	for _, sessions := range []int{10_000, 100_000, 1_000_000} {
		b.Run(fmt.Sprintf("sessions=%d", sessions), func(b *testing.B) {
			for b.Loop() {
				n := newBareNode()
				n.leading.Store(nil) // a follower
				open := make([]machine.OpenedSession, 0, sessions)
				empty := heapInUse()
				open, logBytes := openSessions(b, n.fsm, open)
				follower := heapInUse() - empty
				took := measureTakeOver(b, n)
				each := func(bytes uint64) float64 { return float64(bytes) / float64(sessions) }
				b.ReportMetric(each(follower), "follower-B/session")
				b.ReportMetric(each(heapInUse()-empty), "leader-B/session")
				b.ReportMetric(each(logBytes), "log-B/session")
				b.ReportMetric(float64(took.Microseconds())/1000, "takeover-ms")
				measureRenewals(b, n, open)
				measureDue(b, n, open)
				measureState(b, n)
				measureScan(b, n, sessions)
				b.ReportMetric(0, "ns/op") // of everything together: of no interest
				runtime.KeepAlive(open)
			}
		})
	}
}

// openSessions fills open with sessions that acquire a lock each, through the encoding of the log, whose size it
// returns.
func openSessions(b *testing.B, f *replica.FSM, open []machine.OpenedSession) (_ []machine.OpenedSession,
	logBytes uint64) {
	index := uint64(0)
	apply := func(commands []machine.Command) {
		index++
		data := replica.EncodeEntry(f.Chain(), commands)
		logBytes += uint64(len(data))
		f.Apply(&raft.Log{Index: index, Data: data})
	}
	const piece = 500 // sessions of an entry
	for first := 0; first < cap(open); first += piece {
		var opens, acquires []machine.Command
		for range piece {
			opens = append(opens, &machine.OpenSession{Session: engine.NewSessionID(), TTL: time.Hour})
		}
		apply(opens)
		for i, c := range opens {
			one := machine.OpenedSession{ID: c.(*machine.OpenSession).Session}
			f.Read(func(m *machine.Machine) { one.SessionInfo = m.SessionInfo(one.ID) })
			open = append(open, one)
			acquires = append(acquires, &machine.Acquire{Session: one.ID, Incarnation: one.Incarnation,
				Request: engine.Request{Nonce: 1, Mode: engine.Correctness, Wait: true, Holder: "worker-17.example:4711",
					Resources: []fencing.Resource{fencing.Resource(fmt.Sprintf("tenant/orders/%07d", first+i))}}})
		}
		apply(acquires)
	}
	f.Read(func(m *machine.Machine) { require.Equal(b, cap(open), m.Count().Holders) })
	return open, logBytes
}

// measureTakeOver makes the node lead, and returns the processor time until it has the deadlines of all sessions. It
// serves after the first step.
func measureTakeOver(b *testing.B, n *Node) time.Duration {
	before, longest := cpuTime(b), time.Duration(0)
	var term *leadership
	n.fsm.Read(func(m *machine.Machine) { term = n.newLeadership(m, n.config.Clock.Now()) })
	for more := true; more; {
		step := stopwatch.Now()
		n.fsm.Read(func(m *machine.Machine) { more = term.adopt(m) })
		longest = max(longest, stopwatch.Now().Since(step))
	}
	n.leading.Store(term)
	b.ReportMetric(float64(longest.Microseconds())/1000, "takeover-step-ms")
	return cpuTime(b) - before
}

// measureRenewals renews each session once.
func measureRenewals(b *testing.B, n *Node, open []machine.OpenedSession) {
	term, now := n.leading.Load(), n.config.Clock.Now()
	before := cpuTime(b)
	for i := range open {
		if renewed, _ := term.renew(now, open[i].ID, open[i].Incarnation, 0); !renewed {
			b.Fatal("a session has ended")
		}
	}
	b.ReportMetric(float64((cpuTime(b)-before).Nanoseconds())/float64(len(open)), "renewal-ns")
}

// measureDue renews each session and looks at all deadlines when the first ones of the takeover have passed. It
// reports the processor time of the longest step, for which renewals and the entries of other clients wait.
func measureDue(b *testing.B, n *Node, open []machine.OpenedSession) {
	term, now := n.leading.Load(), n.config.Clock.Now()
	for i := range open {
		require.True(b, term.lessor.Renew(now.Add(time.Hour/2), open[i].ID, open[i].Incarnation, 0))
	}
	heapInUse() // so that garbage of the renewals is not collected meanwhile
	longest, steps := time.Duration(0), 0
	for wait := time.Duration(0); wait == 0; steps++ {
		before := cpuTime(b)
		_, wait = term.lessor.Due(now.Add(time.Hour + time.Minute))
		longest = max(longest, cpuTime(b)-before)
	}
	b.ReportMetric(float64(longest.Microseconds())/1000, "due-step-ms")
	b.ReportMetric(float64(steps), "due-steps")
}

// measureState takes a snapshot and restores it, as a member that restarts does.
func measureState(b *testing.B, n *Node) {
	before := cpuTime(b)
	var longest time.Duration
	var image *machine.Image
	for done := false; !done; {
		step := stopwatch.Now()
		n.fsm.Read(func(m *machine.Machine) {
			if image == nil {
				image = m.Image()
			}
			done = image.Copy(4096)
		})
		longest = max(longest, stopwatch.Now().Since(step))
	}
	data := image.Encode()
	b.ReportMetric(float64((cpuTime(b)-before).Microseconds())/1000, "snapshot-ms")
	b.ReportMetric(float64(longest.Microseconds())/1000, "snapshot-step-ms")
	b.ReportMetric(float64(len(data))/(1<<20), "snapshot-MiB")
	image = nil
	heapInUse() // so that garbage of the snapshot is not collected during the restore
	before = cpuTime(b)
	_, err := machine.Restore(data)
	require.NoError(b, err)
	b.ReportMetric(float64((cpuTime(b)-before).Microseconds())/1000, "restore-ms")
}

// measureScan reads all locks, page by page, as the dashboard does.
func measureScan(b *testing.B, n *Node, locks int) {
	before, found := cpuTime(b), 0
	for after := fencing.Resource(""); ; {
		page := n.Summaries(after)
		found += len(page)
		if len(page) < MaxPage {
			break
		}
		after = page[len(page)-1].Resource
	}
	require.Equal(b, locks, found)
	b.ReportMetric(float64((cpuTime(b)-before).Microseconds())/1000, "scan-ms")
}
