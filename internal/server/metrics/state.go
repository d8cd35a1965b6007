package metrics

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore"
	"github.com/leased-project/leased/redlockadapter"
)

// Source is what a scrape reads. All reads take little time, whatever the number of locks:
// they scan nothing and ask no other machine.
type Source struct {
	Node *raftstore.Node
	// Redis returns the connection to the Redis nodes, or why there is none.
	Redis func() (*redlockadapter.Backend, error)
	// Certificates returns when the certificates expire, by their use. It may be nil.
	Certificates func() map[string]time.Time
	// LostAuditLines returns the number of lost lines of the audit log.
	LostAuditLines func() uint64
}

// Observe makes scrapes read the state of a member. Call it once.
func (m *Metrics) Observe(s Source) { m.registry.MustRegister(&state{Source: s, metrics: m}) }

// state is the collector of a Source.
type state struct {
	Source
	metrics *Metrics

	mu    sync.Mutex
	nodes []string // the fleet at the last scrape
}

// descriptions has the descriptions of all families, by name.
var descriptions = func() map[string]*prometheus.Desc {
	all := map[string]*prometheus.Desc{}
	for _, f := range families {
		all[f.name] = prometheus.NewDesc(prometheus.BuildFQName(namespace, "", f.name), f.help, f.labels, nil)
	}
	return all
}()

// Describe sends nothing: the registry then takes what Collect sends.
func (s *state) Describe(chan<- *prometheus.Desc) {}

// set sends the value of a gauge.
type set func(name string, value float64, labels ...string)

// Collect reads the state.
func (s *state) Collect(to chan<- prometheus.Metric) {
	gauge := func(name string, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(descriptions[name], prometheus.GaugeValue, value, labels...)
	}
	s.collectRaft(gauge)
	s.collectRedis(gauge)
	count, age := s.metrics.migrations.running(s.Node.Topology(), s.metrics.clock.Now())
	gauge("migrations", float64(count))
	gauge("migration_age_seconds", age.Seconds())
	if s.Certificates != nil {
		for use, expiry := range s.Certificates() {
			gauge("certificate_expiry_timestamp_seconds", float64(expiry.Unix()), use)
		}
	}
	to <- prometheus.MustNewConstMetric(descriptions["audit_lost_lines_total"], prometheus.CounterValue,
		float64(s.LostAuditLines()))
}

func (s *state) collectRaft(gauge set) {
	n := s.Node.Status()
	gauge("locks", float64(n.Counts.Locks))
	gauge("holders", float64(n.Counts.Holders))
	gauge("waiters", float64(n.Counts.Waiters))
	gauge("sessions", float64(n.Counts.Sessions))
	gauge("longest_queue", float64(n.LongestQueue))
	gauge("last_token", float64(n.LastToken), engine.Correctness.String())
	gauge("raft_is_leader", oneIf(n.Serves))
	gauge("raft_has_leader", oneIf(n.Leader != ""))
	gauge("raft_term", float64(n.Term))
	gauge("raft_commit_index", float64(n.Commit))
	gauge("raft_applied_index", float64(n.Applied))
	gauge("raft_last_index", float64(n.LastIndex))
	voters := 0
	for _, member := range n.Members {
		if member.Voter {
			voters++
		}
		if member.LagKnown {
			gauge("raft_member_lag_entries", float64(member.Lag), member.ID)
		}
	}
	gauge("raft_members", float64(len(n.Members)))
	gauge("raft_voters", float64(voters))
}

func (s *state) collectRedis(gauge set) {
	topology := s.Node.Topology()
	addresses := topology.Fleet.Addresses
	s.mu.Lock()
	s.metrics.forgetNodes(s.nodes, addresses)
	s.nodes = addresses
	s.mu.Unlock()
	seen := map[string]redlockadapter.NodeStatus{}
	if backend, err := s.Redis(); err == nil {
		for _, n := range backend.NodesSeen() {
			seen[n.Addr] = n
		}
	}
	voting, largest := 0, fencing.None
	for i, address := range addresses {
		n, known := seen[address]
		up := known && n.Err == nil
		votes := up && n.Report.Live != nil && n.Report.Life() == topology.Lives[i] // not another run of the server
		if votes {
			voting++
			largest = max(largest, n.Report.Live.Max)
		}
		gauge("redis_up", oneIf(up), address)
		gauge("redis_voting", oneIf(votes), address)
		gauge("redis_quarantine_seconds", n.Quarantine.Seconds(), address)
		gauge("redis_clock_skew_seconds", n.Skew.Seconds(), address)
	}
	quorum := 0
	if len(addresses) > 0 {
		quorum = len(addresses)/2 + 1
		gauge("last_token", float64(largest), engine.Efficiency.String())
	}
	gauge("redis_nodes", float64(len(addresses)))
	gauge("redis_quorum", float64(quorum))
	gauge("efficiency_ready", oneIf(topology.Ready && quorum > 0 && voting >= quorum))
}

func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// migrations remembers since when this member has seen each running migration. The log
// has no times.
type migrations struct {
	mu   sync.Mutex
	seen map[engine.Policy]engine.Instant
}

// running returns the number of migrations in a topology, and the age of the oldest.
func (m *migrations) running(t engine.Topology, now engine.Instant) (count int, oldest time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	still := map[engine.Policy]engine.Instant{}
	for _, p := range t.Policies.All() {
		if p.Next == engine.AnyMode {
			continue
		}
		key := engine.Policy{Prefix: p.Prefix, Mode: p.Mode, Next: p.Next}
		since, known := m.seen[key]
		if !known {
			since = now
		}
		still[key] = since
		oldest = max(oldest, now.Since(since))
	}
	m.seen = still
	return len(still), oldest
}

// Tick notes which migrations run. Call it about once a second.
func (m *Metrics) Tick(t engine.Topology) { m.migrations.running(t, m.clock.Now()) }
