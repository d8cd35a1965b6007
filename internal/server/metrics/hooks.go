package metrics

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore"
	"github.com/leased-project/leased/raftstore/machine"
	"github.com/leased-project/leased/redlockadapter"
)

// raftMetrics has the metrics of the Raft node that it reports itself.
type raftMetrics struct {
	commit, operations, fsync, snapshot prometheus.Observer
	snapshotSize                        prometheus.Gauge
	leaderChanges                       prometheus.Counter
}

func newRaftMetrics(r registrar) raftMetrics {
	return raftMetrics{
		commit:        r.histograms("raft_commit_seconds").WithLabelValues(),
		operations:    r.histograms("raft_entry_operations").WithLabelValues(),
		fsync:         r.histograms("raft_fsync_seconds").WithLabelValues(),
		snapshot:      r.histograms("raft_snapshot_seconds").WithLabelValues(),
		snapshotSize:  r.gauges("raft_snapshot_size_bytes").WithLabelValues(),
		leaderChanges: r.counters("raft_leader_changes_total").WithLabelValues(),
	}
}

// RaftHooks returns the hooks for the node of this member.
func (m *Metrics) RaftHooks() raftstore.Hooks {
	correctness := &m.byMode[engine.Correctness]
	return raftstore.Hooks{
		Applied: correctness.applied,
		Committed: func(operations int, took time.Duration) {
			m.raft.commit.Observe(took.Seconds())
			m.raft.operations.Observe(float64(operations))
		},
		HandedOff: func(took time.Duration) { correctness.handoff.Observe(took.Seconds()) },
		Stored:    func(took time.Duration) { m.raft.fsync.Observe(took.Seconds()) },
		Snapshot: func(took time.Duration, bytes int64) {
			m.raft.snapshot.Observe(took.Seconds())
			m.raft.snapshotSize.Set(float64(bytes))
		},
		LeaderChanged: m.raft.leaderChanges.Inc,
		Restored:      func(leases int) { correctness.ended[Lost].Add(float64(leases)) },
	}
}

// applied counts the events of one command.
func (m *modeMetrics) applied(events []machine.Event) {
	for i := range events {
		switch events[i].Type {
		case machine.EventGranted:
			m.grants.Inc()
		case machine.EventQueued:
			m.waits.Inc()
		case machine.EventReleased:
			m.ended[Released].Inc()
		case machine.EventExpired:
			m.ended[Expired].Inc()
		case machine.EventBroken:
			m.ended[Broken].Inc()
		}
	}
}

// RedisHooks returns the hooks for the Redis nodes.
func (m *Metrics) RedisHooks() redlockadapter.Hooks {
	efficiency := &m.byMode[engine.Efficiency]
	return redlockadapter.Hooks{
		Node: func(address string) redlockadapter.NodeHooks {
			calls, failed := m.redis.calls.WithLabelValues(address), m.redis.errors.WithLabelValues(address)
			return redlockadapter.NodeHooks{
				Replied: func(took time.Duration) { calls.Observe(took.Seconds()) },
				Refused: func(requests int) { failed.Add(float64(requests)) },
			}
		},
		HandedOff: func(took time.Duration) { efficiency.handoff.Observe(took.Seconds()) },
		Expired:   func(engine.Held) { efficiency.ended[Expired].Inc() },
	}
}

// forgetNodes removes the metrics of Redis nodes that left the fleet.
func (m *Metrics) forgetNodes(former, current []string) {
	for _, address := range former {
		if !slices.Contains(current, address) {
			m.redis.calls.DeleteLabelValues(address)
			m.redis.errors.DeleteLabelValues(address)
		}
	}
}
