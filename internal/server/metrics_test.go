package server_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/internal/server"
	"github.com/leased-project/leased/internal/server/metrics"
	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore"
)

// measured is a member in this process with metrics.
type measured struct {
	id      string
	node    *raftstore.Node
	address string
	metrics *metrics.Metrics
}

// startMeasured starts a member. Without a member to join, it creates a cluster.
func startMeasured(t testing.TB, id string, fleet engine.Fleet, join string) *measured {
	t.Helper()
	m := &measured{id: id, metrics: metrics.New("1.2.3", "")}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s, err := server.New(server.Config{Redis: fleet, RedisTimeout: 3 * time.Second, Logger: quiet, Metrics: m.metrics,
		Raft: raftstore.Config{ID: id, Dir: t.TempDir(), Address: testserver.FreeAddr(t), Logger: quiet,
			HeartbeatTimeout: steadyHeartbeat, StoreDeadline: time.Minute}, // an election of its own would disturb the counts
		Certificates: func() map[string]time.Time { return map[string]time.Time{"own": time.Unix(4e9, 0)} }}, listener)
	require.NoError(t, err)
	m.node = s.Node()
	m.address = s.Address()
	done := make(chan error, 1)
	go func() { done <- s.Serve() }()
	t.Cleanup(func() {
		require.NoError(t, s.Close())
		require.NoError(t, <-done)
	})
	if join == "" {
		require.NoError(t, m.node.Bootstrap())
	} else {
		require.NoError(t, s.Join(testContext(t), join))
	}
	return m
}

// text scrapes a member.
func (m *measured) text(t testing.TB) string {
	t.Helper()
	response, err := http.Get("http://" + m.address + metrics.Path)
	require.NoError(t, err)
	defer response.Body.Close()
	require.Equal(t, http.StatusOK, response.StatusCode)
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return string(text)
}

// scrape returns the values of a member by name and labels, without the prefix.
func (m *measured) scrape(t testing.TB) map[string]float64 {
	t.Helper()
	values := map[string]float64{}
	for line := range strings.Lines(m.text(t)) {
		line, ours := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "leased_")
		i := strings.LastIndexByte(line, ' ')
		if !ours || i < 0 {
			continue
		}
		value, err := strconv.ParseFloat(line[i+1:], 64)
		require.NoError(t, err, line)
		values[line[:i]] = value
	}
	return values
}

// measuredCluster is three members on Redis nodes.
type measuredCluster []*measured

func (c measuredCluster) leader(t testing.TB) *measured {
	t.Helper()
	var leader *measured
	eventually(t, "a member leads, and all know its address", func() bool {
		leader = nil
		for _, m := range c {
			if m.node.Leads() {
				leader = m
			}
			if id, _ := m.node.Leader(); id == "" || m.node.MemberAPI(id) == "" {
				return false
			}
		}
		return leader != nil
	})
	return leader
}

func (c measuredCluster) follower(t testing.TB) *measured {
	leader := c.leader(t)
	return c[slices.IndexFunc(c, func(m *measured) bool { return m != leader })]
}

// sum adds up the values of all members.
func (c measuredCluster) sum(t testing.TB) map[string]float64 {
	t.Helper()
	sum := map[string]float64{}
	for _, m := range c {
		for name, value := range m.scrape(t) {
			sum[name] += value
		}
	}
	return sum
}

// requireIncreases waits until the sums have increased by exactly these values, and
// requires that no other event of a lease was counted.
func (c measuredCluster) requireIncreases(t testing.TB, before, want map[string]float64) {
	t.Helper()
	counted := regexp.MustCompile(`^(grants|acquire_errors|waits|renewals|leases_ended)_total|` +
		`^time_to_grant_seconds_count`)
	increases := func() map[string]float64 {
		changed := map[string]float64{}
		for name, value := range c.sum(t) {
			if counted.MatchString(name) && value != before[name] {
				changed[name] = value - before[name]
			}
		}
		return changed
	}
	for name, value := range want {
		eventually(t, fmt.Sprint(name, " increases by ", value), func() bool { return increases()[name] >= value })
	}
	require.Equal(t, want, increases())
}

// TestMetrics compares the metrics of three members with what was done.
func TestMetrics(t *testing.T) {
	t.Parallel()
	servers := startRedis(t, 3)
	fleet := fleetOf(servers, longTTL)
	c := measuredCluster{startMeasured(t, "n1", fleet, "")}
	for _, id := range []string{"n2", "n3"} {
		c = append(c, startMeasured(t, id, engine.Fleet{}, c[0].address))
	}
	setMode(t, c[0].address, "fast/", engine.Efficiency)
	for _, m := range c {
		awaitMode(t, m.address, "fast/", engine.Efficiency)
		eventually(t, m.id+" is connected to the Redis nodes", func() bool { return m.scrape(t)["efficiency_ready"] == 1 })
	}
	t.Run("correctness", func(t *testing.T) { testMetricsOfMode(t, c, engine.Correctness, c.leader(t).address, "slow/") })
	t.Run("efficiency", func(t *testing.T) { testMetricsOfMode(t, c, engine.Efficiency, c.follower(t).address, "fast/") })
	t.Run("stream", func(t *testing.T) { testMetricsOfStream(t, c) })
	t.Run("redirect", func(t *testing.T) { testMetricsOfRedirect(t, c) })
	t.Run("state", func(t *testing.T) { testMetricsOfState(t, c, fleet) })
	t.Run("failover", func(t *testing.T) { testMetricsAfterFailover(t, c) })
	t.Run("all", func(t *testing.T) { testAllMetrics(t, c) })
	t.Run("lost node", func(t *testing.T) { testMetricsOfLostNode(t, c, servers[0]) })
}

// testMetricsOfMode makes every kind of call at one member, as often as it takes to see a handoff: if a Redis node is
// slow to release a lock, the next waiter asks again, and no handoff is measured.
func testMetricsOfMode(t *testing.T, c measuredCluster, mode engine.Mode, address, prefix string) {
	before := c.sum(t)
	lock := func(name, rest string) string { return fmt.Sprintf(`{"resource":%q%s}`, prefix+name, rest) }
	label := fmt.Sprintf(`{mode=%q}`, mode)
	rounds := 0.0
	eventually(t, "a handoff is measured", func() bool {
		first := mustPost(t, address, "/v1/acquire", lock("a", `,"ttl":"1m"`))
		code, _ := post(t, address, "/v1/acquire", lock("a", ""))
		require.Equal(t, http.StatusConflict, code)
		waiting := postAsync(t, address, "/v1/acquire", lock("a", `,"ttl":"1m","wait":"2m"`))
		rounds++
		eventually(t, "the acquire waits", func() bool {
			return c.sum(t)["waits_total"+label] == before["waits_total"+label]+rounds
		})
		mustPost(t, address, "/v1/renew", leaseName(first))
		mustPost(t, address, "/v1/release", leaseName(first))
		second := <-waiting
		mustPost(t, address, "/v1/break", leaseName(second))
		code, _ = post(t, address, "/v1/renew", leaseName(second))
		require.Equal(t, http.StatusNotFound, code)
		return c.sum(t)["handoff_seconds_count"+label] > before["handoff_seconds_count"+label]
	})
	mustPost(t, address, "/v1/acquire", lock("b", `,"ttl":"500ms"`)) // and nobody renews it
	code, _ := post(t, address, "/v1/acquire", `{"resource":"`+prefix+`a","wait":"yesterday"}`)
	require.Equal(t, http.StatusBadRequest, code)
	with := func(name, label, value string) string {
		return fmt.Sprintf(`%s{%s}`, name,
			strings.Join(slices.Sorted(slices.Values([]string{fmt.Sprintf("mode=%q", mode),
				fmt.Sprintf("%s=%q", label, value)})), ","))
	}
	c.requireIncreases(t, before, map[string]float64{
		"grants_total" + label: 2*rounds + 1, "time_to_grant_seconds_count" + label: 2*rounds + 1,
		"waits_total" + label:                        rounds,
		with("acquire_errors_total", "code", "held"): rounds, with("acquire_errors_total", "code", "invalid"): 1,
		with("renewals_total", "result", "renewed"): rounds, with("renewals_total", "result", "lost"): rounds,
		with("leases_ended_total", "cause", "released"): rounds, with("leases_ended_total", "cause", "broken"): rounds,
		with("leases_ended_total", "cause", "expired"): 1,
	})
}

// testMetricsOfStream does the same on session streams.
func testMetricsOfStream(t *testing.T, c measuredCluster) {
	before := c.sum(t)
	s := openStream(t, c.leader(t).address, engine.NewSessionID())
	require.Empty(t, s.open())
	require.Empty(t, s.acquire(1, "slow/stream"))
	require.Equal(t, "held", s.acquire(2, "slow/stream"))
	require.Empty(t, s.renew())
	_, code := s.do(&pb.Operation{Call: &pb.Operation_Release{Release: &pb.ReleaseCall{Nonce: 1}}})
	require.Empty(t, code)

	fast := openStream(t, c.follower(t).address, engine.NewSessionID())
	call := &pb.AcquireCall{Nonce: 1, Resources: []string{"fast/stream"}, TtlNanos: int64(longTTL)}
	granted, code := fast.do(&pb.Operation{Call: &pb.Operation_Acquire{Acquire: call}})
	require.Empty(t, code)
	held := &pb.HeldLease{Nonce: 1, Name: granted.Name, Resources: call.Resources, Token: granted.Token,
		TtlNanos: call.TtlNanos}
	for range 2 {
		_, code = fast.do(&pb.Operation{Call: &pb.Operation_Renew{Renew: &pb.RenewCall{Leases: []*pb.HeldLease{held}}}})
		require.Empty(t, code)
	}
	_, code = fast.do(&pb.Operation{Call: &pb.Operation_Release{Release: &pb.ReleaseCall{Nonce: 1, Lease: held}}})
	require.Empty(t, code)
	c.requireIncreases(t, before, map[string]float64{
		`grants_total{mode="correctness"}`: 1, `time_to_grant_seconds_count{mode="correctness"}`: 1,
		`acquire_errors_total{code="held",mode="correctness"}`:    1,
		`renewals_total{mode="correctness",result="renewed"}`:     1,
		`leases_ended_total{cause="released",mode="correctness"}`: 1,
		`grants_total{mode="efficiency"}`:                         1, `time_to_grant_seconds_count{mode="efficiency"}`: 1,
		`renewals_total{mode="efficiency",result="renewed"}`: 2, `leases_ended_total{cause="released",mode="efficiency"}`: 1,
	})
}

// testMetricsOfRedirect shows that a call that a follower forwards is counted once, by the
// leader, and so is the grant of a call that was repeated.
func testMetricsOfRedirect(t *testing.T, c measuredCluster) {
	before, follower, leader := c.sum(t), c.follower(t), c.leader(t)
	own := leader.scrape(t)[`grants_total{mode="correctness"}`] // another member may have led before
	granted := mustPost(t, follower.address, "/v1/acquire", `{"resource":"slow/forwarded","ttl":"1m"}`)
	mustPost(t, follower.address, "/v1/renew", leaseName(granted))
	mustPost(t, follower.address, "/v1/release", leaseName(granted))
	const repeated = `{"resource":"fast/repeated","ttl":"1m","attempt":"0123456789abcdef"}`
	require.Equal(t, mustPost(t, follower.address, "/v1/acquire", repeated)["token"],
		mustPost(t, leader.address, "/v1/acquire", repeated)["token"])
	mustPost(t, follower.address, "/v1/release", leaseName(mustPost(t, follower.address, "/v1/acquire", repeated)))
	c.requireIncreases(t, before, map[string]float64{
		`grants_total{mode="correctness"}`: 1, `time_to_grant_seconds_count{mode="correctness"}`: 1,
		`renewals_total{mode="correctness",result="renewed"}`:     1,
		`leases_ended_total{cause="released",mode="correctness"}`: 1,
		`grants_total{mode="efficiency"}`:                         1, `time_to_grant_seconds_count{mode="efficiency"}`: 3,
		`leases_ended_total{cause="released",mode="efficiency"}`: 1,
	})
	require.Equal(t, own+1, leader.scrape(t)[`grants_total{mode="correctness"}`])
}

// testMetricsOfState compares the gauges with the state.
func testMetricsOfState(t *testing.T, c measuredCluster, fleet engine.Fleet) {
	leader := c.leader(t)
	first := mustPost(t, leader.address, "/v1/acquire", `{"resource":"slow/state","ttl":"10m"}`)
	s := openStream(t, leader.address, engine.NewSessionID())
	require.Empty(t, s.open())
	for nonce := range uint64(3) {
		call := &pb.AcquireCall{Nonce: nonce + 1, Resources: []string{"slow/state"}, Wait: true}
		require.NoError(t, s.stream.Send(&pb.SessionRequest{Operations: []*pb.Operation{{Session: s.id[:],
			Call: &pb.Operation_Acquire{Acquire: call}}}}))
	}
	for _, m := range c {
		require.EventuallyWithT(t, func(collect *assert.CollectT) {
			leader := c.leader(t)
			got, status := m.scrape(t), m.node.Status()
			for name, want := range map[string]float64{
				"locks": 1, "holders": 1, "waiters": 3, "longest_queue": 3, "sessions": float64(status.Counts.Sessions),
				`last_token{mode="correctness"}`: float64(status.LastToken),
				"raft_is_leader":                 map[bool]float64{true: 1}[m == leader],
				"raft_has_leader":                1, "raft_term": float64(status.Term),
				"raft_members": 3, "raft_voters": 3,
				"redis_nodes": 3, "redis_quorum": 2, "efficiency_ready": 1, "migrations": 0, "migration_age_seconds": 0,
				`certificate_expiry_timestamp_seconds{use="own"}`: 4e9, "audit_lost_lines_total": 0,
			} {
				assert.Equal(collect, want, got[name], name)
			}
			assert.Positive(collect, got[`last_token{mode="efficiency"}`])
			for _, address := range fleet.Addresses {
				node := fmt.Sprintf(`{node=%q}`, address)
				assert.Equal(collect, []float64{1, 1, 0}, []float64{got["redis_up"+node], got["redis_voting"+node],
					got["redis_quarantine_seconds"+node]})
				assert.Positive(collect, got["redis_call_seconds_count"+node])
			}
			for _, other := range c {
				_, exists := got[fmt.Sprintf(`raft_member_lag_entries{member=%q}`, other.id)]
				assert.Equal(collect, m == leader, exists, "only the leader knows how far members are behind")
			}
		}, testserver.Limit(t), 50*time.Millisecond, m.id)
	}
	got := leader.scrape(t)
	require.Positive(t, got["raft_commit_seconds_count"])
	require.Positive(t, got["raft_fsync_seconds_count"])
	require.GreaterOrEqual(t, got["raft_entry_operations_sum"], got["raft_entry_operations_count"])
	mustPost(t, leader.address, "/v1/release", leaseName(first))
	require.NoError(t, s.stream.Send(&pb.SessionRequest{Operations: []*pb.Operation{{Session: s.id[:],
		Call: &pb.Operation_Close{Close: &pb.CloseCall{}}}}}))
	for answers := 0; answers < 4; { // later tests count on that nothing waits
		message, err := s.stream.Recv()
		require.NoError(t, err)
		answers += len(message.Answers)
	}
}

// testMetricsAfterFailover shows that the sum over all members stays right when another
// member leads.
func testMetricsAfterFailover(t *testing.T, c measuredCluster) {
	before, former := c.sum(t), c.leader(t)
	require.NoError(t, former.node.Transfer(testContext(t), ""))
	leader := c.leader(t)
	eventually(t, "another member leads", func() bool { leader = c.leader(t); return leader != former })
	granted := mustPost(t, former.address, "/v1/acquire", `{"resource":"slow/failover","ttl":"1m"}`)
	mustPost(t, leader.address, "/v1/release", leaseName(granted))
	c.requireIncreases(t, before, map[string]float64{
		`grants_total{mode="correctness"}`: 1, `time_to_grant_seconds_count{mode="correctness"}`: 1,
		`leases_ended_total{cause="released",mode="correctness"}`: 1,
	})
	eventually(t, "all members have seen the election", func() bool {
		return c.sum(t)["raft_leader_changes_total"] >= before["raft_leader_changes_total"]+float64(len(c))
	})
}

// A Redis node whose server the topology does not name does not vote, although it has a state.
func TestMetricsOfAnUnnamedServer(t *testing.T) {
	t.Parallel()
	servers := startRedis(t, 3)
	m := startMeasured(t, "n1", fleetOf(servers, longTTL), "")
	eventually(t, "all nodes vote", func() bool {
		got := m.scrape(t)
		return got["efficiency_ready"] == 1 && got[fmt.Sprintf(`redis_voting{node=%q}`, servers[0].Addr)] == 1
	})
	for _, server := range servers[:2] {
		client := redis.NewClient(&redis.Options{Addr: server.Addr})
		keys, err := client.Keys(testContext(t), "*:node").Result()
		require.NoError(t, err)
		require.Len(t, keys, 1)
		require.NoError(t, client.HSet(testContext(t), keys[0], "initialised", "by another join").Err())
		require.NoError(t, client.Close())
	}
	eventually(t, "the nodes do not vote", func() bool {
		got := m.scrape(t)
		for _, server := range servers[:2] {
			node := fmt.Sprintf(`{node=%q}`, server.Addr)
			if got["redis_up"+node] != 1 || got["redis_voting"+node] != 0 {
				return false
			}
		}
		return got["efficiency_ready"] == 0
	})
}

// testMetricsOfLostNode restarts a Redis node, which counts as a loss of its data.
func testMetricsOfLostNode(t *testing.T, c measuredCluster, lost *testserver.RedisServer) {
	node := fmt.Sprintf(`{node=%q}`, lost.Addr)
	lost.Kill()
	for _, m := range c {
		eventually(t, m.id+" sees that the node is down", func() bool {
			got := m.scrape(t)
			return got["redis_up"+node] == 0 && got["redis_voting"+node] == 0 && got["redis_errors_total"+node] > 0
		})
		eventually(t, "the others are a quorum", func() bool { return m.scrape(t)["efficiency_ready"] == 1 })
	}
	require.NoError(t, lost.Start())
	for _, m := range c {
		eventually(t, m.id+" sees that the node is in quarantine", func() bool {
			got := m.scrape(t)
			return got["redis_up"+node] == 1 && got["redis_voting"+node] == 0 && got["redis_quarantine_seconds"+node] > 0
		})
	}
}

// testAllMetrics compares a scrape with docs/METRICS.md, and checks it with promtool and
// the linter of Prometheus.
func testAllMetrics(t *testing.T, c measuredCluster) {
	leader := c.leader(t)
	_, err := leader.node.SaveSnapshot(testContext(t), io.Discard)
	require.NoError(t, err)
	before := leader.scrape(t)
	for range 3 {
		mustPost(t, leader.address, "/v1/report-refusal", `{"resource":"slow/gate","token":1,"mark":2,"gate":"my own gate"}`)
	}
	mustPost(t, leader.address, "/v1/report-refusal",
		`{"resource":"slow/gate","mark":2,"gate":"sql","reason":"tokenless"}`)
	text := leader.text(t)
	document, err := os.ReadFile("../../docs/METRICS.md")
	require.NoError(t, err)
	listed := regexp.MustCompile("(?m)^\\| `(leased_[a-z_]+)` \\| (\\w+) \\|").FindAllStringSubmatch(string(document), -1)
	require.Greater(t, len(listed), 40)
	for _, family := range listed {
		require.Contains(t, text, "# HELP "+family[1]+" ")
		require.Contains(t, text, "# TYPE "+family[1]+" "+family[2]+"\n")
	}
	for _, help := range regexp.MustCompile(`(?m)^# HELP (leased_\w+) `).FindAllStringSubmatch(text, -1) {
		require.True(t, slices.ContainsFunc(listed, func(f []string) bool {
			return f[1] == help[1]
		}), "%s is not in docs/METRICS.md", help[1])
	}
	require.Contains(t, text, `leased_build_info{commit=`)
	require.Contains(t, text, "process_start_time_seconds ")
	require.Contains(t, text, "go_goroutines ")
	require.NotContains(t, text, "slow/", "labels have no names of locks")
	got := leader.scrape(t)
	require.InDelta(t, before[`gate_refusals_total{gate="other",reason="stale"}`]+3,
		got[`gate_refusals_total{gate="other",reason="stale"}`], 0)
	require.InDelta(t, before[`gate_refusals_total{gate="sql",reason="tokenless"}`]+1,
		got[`gate_refusals_total{gate="sql",reason="tokenless"}`], 0)
	require.Positive(t, got["raft_snapshot_seconds_count"])
	require.Positive(t, got["raft_snapshot_size_bytes"])
	require.Positive(t, got[`calls_total{code="ok",method="LeaseService/Acquire"}`])

	problems, err := testutil.GatherAndLint(leader.metrics.Gatherer())
	require.NoError(t, err)
	require.Empty(t, problems)
	command := exec.CommandContext(testContext(t), "promtool", "check", "metrics")
	command.Stdin = bytes.NewBufferString(text)
	output, err := command.CombinedOutput()
	require.NoError(t, err, string(output))
	require.Empty(t, string(output))
}
