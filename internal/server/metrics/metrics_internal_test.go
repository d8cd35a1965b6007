package metrics

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/internal/wire"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/machine"
)

var update = flag.Bool("update", false, "rewrite the table in docs/METRICS.md")

// series returns the number of series of a family.
func series(t *testing.T, g prometheus.Gatherer, name string) int {
	t.Helper()
	n, err := testutil.GatherAndCount(g, namespace+"_"+name)
	require.NoError(t, err)
	return n
}

// Recording on the path of an operation allocates nothing.
func TestRecordingAllocatesNothing(t *testing.T) {
	m := New("test", "")
	raft, redis := m.RaftHooks(), m.RedisHooks()
	node := redis.Node("127.0.0.1:6379")
	events := []machine.Event{{Type: machine.EventReleased}, {Type: machine.EventGranted}, {Type: machine.EventQueued},
		{Type: machine.EventCancelled}}
	held := fmt.Errorf("acquire: %w", engine.ErrHeld)
	for name, record := range map[string]func(){
		"granted":       func() { m.StartAcquire().Granted(engine.Correctness) },
		"efficiency":    func() { m.StartAcquire().Granted(engine.Efficiency) },
		"refused":       func() { m.StartAcquire().Refused(engine.Efficiency, "held") },
		"grants":        m.Grants,
		"waits":         m.Waits,
		"renewed":       func() { m.Renewed(engine.Correctness, nil) },
		"ended":         func() { m.Ended(Released) },
		"applied":       func() { raft.Applied(events) },
		"committed":     func() { raft.Committed(64, time.Millisecond) },
		"stored":        func() { raft.Stored(time.Millisecond) },
		"handed off":    func() { raft.HandedOff(time.Millisecond) },
		"Redis":         func() { node.Replied(time.Millisecond); node.Refused(1) },
		"call":          func() { m.Called(pb.LeaseService_Acquire_FullMethodName, nil) },
		"refused call":  func() { m.Called(pb.LeaseService_Acquire_FullMethodName, held) },
		"gate refusals": func() { m.GateRefused("sql", "stale") },
	} {
		require.Zero(t, testing.AllocsPerRun(1000, record), name)
	}
}

// Callers cannot add label values, whatever they send.
func TestLabelsAreBounded(t *testing.T) {
	m := New("test", "")
	methods, gates := series(t, m.registry, "calls_total"), series(t, m.registry, "gate_refusals_total")
	for i := range 1000 {
		text := fmt.Sprint("x", i)
		m.Called("/"+text, nil)
		m.Called("/v1/"+text, engine.ErrHeld)
		m.Called(pb.LeaseService_Acquire_FullMethodName, errors.New(text))
		m.GateRefused(text, text)
		m.GateRefused("sql", text)
		m.GateRefused("redis\xff", "stale")
		m.StartAcquire().Refused(engine.Correctness, text)
	}
	require.Equal(t, methods+2, series(t, m.registry, "calls_total"), "other with held, and Acquire with internal")
	require.Equal(t, gates, series(t, m.registry, "gate_refusals_total"))
	require.Equal(t, 2*(len(wire.Codes())-1), series(t, m.registry, "acquire_errors_total"), "all codes but the redirect")
	require.InDelta(t, 1000, testutil.ToFloat64(m.gates.WithLabelValues("sql", "other")), 0)
}

// The gauges of a fleet do not keep nodes that left it.
func TestNodesThatLeftAreForgotten(t *testing.T) {
	m := New("test", "")
	hooks := m.RedisHooks()
	for i := range 10 {
		hooks.Node(fmt.Sprint("127.0.0.1:", i)).Replied(time.Second)
	}
	require.Equal(t, 10, series(t, m.registry, "redis_call_seconds"))
	m.forgetNodes([]string{"127.0.0.1:1", "127.0.0.1:2"}, []string{"127.0.0.1:2", "127.0.0.1:3"})
	require.Equal(t, 9, series(t, m.registry, "redis_call_seconds"))
	require.Equal(t, 9, series(t, m.registry, "redis_errors_total"))
}

// The age of a migration counts from when the member has first seen it.
func TestMigrationAge(t *testing.T) {
	var m migrations
	var start engine.Instant
	move := engine.Policy{Prefix: "a/", Mode: engine.Efficiency, Next: engine.Correctness}
	at := func(after time.Duration, policies ...engine.Policy) (int, time.Duration) {
		list, err := engine.NewPolicies(policies...)
		require.NoError(t, err)
		return m.running(engine.Topology{Policies: list}, start.Add(after))
	}
	count, age := at(0)
	require.Equal(t, []any{0, time.Duration(0)}, []any{count, age})
	_, _ = at(time.Second, move)
	count, age = at(11*time.Second, move, engine.Policy{Prefix: "b/", Mode: engine.Correctness})
	require.Equal(t, []any{1, 10 * time.Second}, []any{count, age})
	_, _ = at(12 * time.Second)
	count, age = at(20*time.Second, move)
	require.Equal(t, []any{1, time.Duration(0)}, []any{count, age}, "another migration of the same prefix")
}

// docs/METRICS.md has the table of families. Run with -update to rewrite it.
func TestDocumented(t *testing.T) {
	const file, begin, end = "../../../docs/METRICS.md", "<!-- families -->\n", "<!-- end of families -->"
	var table strings.Builder
	table.WriteString("\n| metric | type | labels | meaning |\n|---|---|---|---|\n")
	for _, f := range families {
		require.True(t, strings.HasSuffix(f.help, "."), f.name)
		fmt.Fprintf(&table, "| `%s_%s` | %s | %s | %s |\n", namespace, f.name, f.kind, strings.Join(f.labels, ", "), f.help)
	}
	table.WriteString("\n")
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	before, rest, found := strings.Cut(string(text), begin)
	require.True(t, found, "docs/METRICS.md has no %s", begin)
	have, after, found := strings.Cut(rest, end)
	require.True(t, found, "docs/METRICS.md has no %s", end)
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(before+begin+table.String()+end+after), 0o644))
		return
	}
	require.Equal(t, table.String(), have, "run `go test ./internal/server/metrics -run TestDocumented -update`")
}
