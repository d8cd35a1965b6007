//go:build unix

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/internal/testserver"
)

// startRedis starts n empty Redis nodes and returns the flags of serve for them.
func startRedis(t *testing.T, n int, maxTTL string, options ...testserver.RedisOption) (nodes []*testserver.RedisServer,
	flags []string) {
	t.Helper()
	for range n {
		nodes = append(nodes, testserver.Redis(t, options...))
	}
	return nodes, []string{"--redis=" + strings.Join(addressesOf(nodes), ","), "--redis-max-ttl=" + maxTTL}
}

func addressesOf(nodes []*testserver.RedisServer) (addresses []string) {
	for _, n := range nodes {
		addresses = append(addresses, n.Addr)
	}
	return addresses
}

// fleetStatus is the output of `leased redis status`.
type fleetStatus struct {
	Fleet struct {
		Namespace, MaxTTL string
		Addresses         []string
	}
	Nodes []struct {
		Address, Error, Quarantine string
		Empty                      bool
		Version, Floor, Ceiling    uint64
	}
	Version, Ceiling uint64
	Ready            bool
	WaitingFor       string
	ProposedFloor    uint64
}

func redisStatus(t *testing.T, env []string, flags ...string) (f fleetStatus) {
	t.Helper()
	text := must(t, env, append([]string{leased, "redis", "status", "--output=json"}, flags...)...)
	require.NoError(t, json.Unmarshal([]byte(text), &f), text)
	return f
}

// votes returns the number of nodes that vote.
func (f fleetStatus) votes() (n int) {
	for _, node := range f.Nodes {
		if node.Error == "" && !node.Empty {
			n++
		}
	}
	return n
}

// awaitVotes waits until n nodes vote.
func awaitVotes(t *testing.T, env []string, n int, flags ...string) {
	t.Helper()
	eventually(t, func() bool {
		text, code := call(t, env, append([]string{leased, "redis", "status", "--output=json"}, flags...)...)
		var f fleetStatus
		return code == 0 && json.Unmarshal([]byte(text), &f) == nil && f.Ready && f.votes() == n
	}, "for %d votes", n)
}

// take acquires and releases a lock in efficiency mode, and returns its token.
func take(t *testing.T, api, resource string) uint64 {
	t.Helper()
	var got answer
	eventually(t, func() bool {
		var err error
		got, err = post(t, api, "Acquire", fmt.Sprintf(`{"resource":%q,"mode":"efficiency","ttl":"10s"}`, resource))
		return err == nil
	}, "for %s; the last answer was %+v", resource, &got)
	eventually(t, func() bool {
		_, err := post(t, api, "Release", fmt.Sprintf(`{"resource":%q,"token":%d}`, resource, got.Token))
		return err == nil
	}, "for the release of %s", resource)
	return got.Token
}

// A policy in the file suffices to use new Redis nodes. Emptied nodes recover
// automatically, one of them or all, with larger tokens.
func TestPolicyFileAndLostNodes(t *testing.T) {
	t.Parallel()
	nodes, flags := startRedis(t, 3, "10s")
	file := filepath.Join(t.TempDir(), "leased.yaml")
	require.NoError(t, os.WriteFile(file, []byte("policies:\n  - {prefix: report/, mode: efficiency, ttl: 10s}\n"), 0o600))
	_, api := single(t, append(flags, "--config="+file)...)
	env := endpoint(api)
	first := take(t, api, "report/1")
	require.Regexp(t, `report/\* +efficiency +10s`, must(t, env, leased, "policy", "show"))
	awaitVotes(t, env, 3)
	require.Contains(t, must(t, env, leased, "redis", "init"), "nothing to do")

	require.NoError(t, nodes[0].Wipe())
	require.Greater(t, take(t, api, "report/1"), first, "two of three nodes are a quorum")
	require.NoError(t, nodes[0].Start())
	awaitVotes(t, env, 3)
	last := take(t, api, "report/1")

	for _, n := range nodes {
		require.NoError(t, n.Wipe())
	}
	for _, n := range nodes {
		require.NoError(t, n.Start())
	}
	require.Greater(t, take(t, api, "report/1"), last, "all nodes had lost their tokens")
	awaitVotes(t, env, 3)
}

// A member that cannot reach its Redis nodes serves correctness mode, reports the
// problem, and serves efficiency mode as soon as it can.
func TestServeWithoutRedis(t *testing.T) {
	t.Parallel()
	nodes, flags := startRedis(t, 3, "10s")
	api := testserver.FreeAddr(t)
	args := append([]string{leased, "serve", "--id=one", "--data=" + t.TempDir() + "/one", "--listen=" + api,
		"--raft-listen=127.0.0.1:0",
		"--bootstrap-expect=1"}, flags...)
	p := start(t, nil, args...)
	healthy(t, api)
	env := endpoint(api)
	must(t, env, leased, "policy", "set", "report/*", "--mode=efficiency")
	before := take(t, api, "report/1")
	p.signal(syscall.SIGTERM)
	require.Zero(t, p.code())
	for _, n := range nodes {
		n.Stop()
	}

	start(t, nil, args...)
	healthy(t, api)
	token := tokenOf(t, env, "job/1", "--ttl=1m")
	must(t, env, leased, "release", "job/1", "--token="+token)
	must(t, env, leased, "run", "job/1", "--", "true")
	out, code := call(t, env, leased, "acquire", "report/1")
	require.Equal(t, 122, code, out)
	listsWithoutRedis(t, env)
	out = must(t, env, leased, "redis", "status")
	for _, n := range nodes {
		require.Regexp(t, `(?m)^`+n.Addr+` +unreachable: [^;]*refused`, out, "each node has its own error")
	}
	require.Contains(t, out, "not ready; waiting for: 0 of 3 Redis nodes vote, 2 are needed")
	var health string
	require.NoError(t, curl(t, "http://"+api+"/readyz", "", &health))
	require.Contains(t, health, "locks in correctness mode only: ")

	for _, n := range nodes {
		require.NoError(t, n.Start())
	}
	require.Greater(t, take(t, api, "report/1"), before)
}

// listsWithoutRedis checks that list shows the locks in correctness mode, and says what is
// missing if there can be locks in efficiency mode.
func listsWithoutRedis(t *testing.T, env []string) {
	t.Helper()
	const missing = "locks in efficiency mode are missing, because the Redis nodes did not answer"
	token := tokenOf(t, env, "job/2", "--ttl=10m")
	for _, args := range [][]string{{}, {"--sort=queue", "--limit=10"}, {"--output=json"}} {
		out := must(t, env, append([]string{leased, "list"}, args...)...)
		require.Contains(t, out, "job/2")
		require.Equal(t, 1, strings.Count(out, missing), out)
	}
	require.NotContains(t, must(t, env, leased, "list", "job/"), missing, "all of these are in correctness mode")
	require.NotContains(t, must(t, env, leased, "top", "--once", "job/"), "are missing")
	require.Contains(t, must(t, env, leased, "top", "--once"), "locks in efficiency mode are missing: ")
	out, code := call(t, env, leased, "list", "--mode=efficiency")
	require.Equal(t, 122, code, out)
	must(t, env, leased, "release", "job/2", "--token="+token)
}

// `redis fleet set` changes the fleet: tokens keep growing, and the old nodes grant
// nothing.
func TestFleetSet(t *testing.T) {
	t.Parallel()
	old, flags := startRedis(t, 3, "10s")
	_, api := single(t, flags...)
	env := endpoint(api)
	must(t, env, leased, "policy", "set", "report/*", "--mode=efficiency")
	first := take(t, api, "report/1")

	next, _ := startRedis(t, 3, "10s")
	out, code := call(t, env, leased, "redis", "fleet", "set", next[0].Addr, next[1].Addr)
	require.Equal(t, 2, code, out)
	require.Contains(t, out, "use an odd number")
	out, code = call(t, env, leased, "redis", "fleet", "set", old[0].Addr, "127.0.0.1:1", "127.0.0.1:2")
	require.Equal(t, 122, code, out)
	require.Contains(t, out, "nothing was changed")
	require.Contains(t, out, "connection refused")
	require.NotContains(t, must(t, env, leased, "redis", "fleet", "show"), "changing", "the old fleet was stopped")
	mixed := []string{old[0].Addr, next[0].Addr, next[1].Addr}
	out = must(t, env, append([]string{leased, "redis", "fleet", "set"}, mixed...)...)
	require.Contains(t, out, "3 Redis nodes serve efficiency mode")
	require.Contains(t, out, "changing to", "the command prints its progress")
	f := redisStatus(t, env)
	require.ElementsMatch(t, mixed, f.Fleet.Addresses)
	require.Equal(t, "10s", f.Fleet.MaxTTL, "the longest TTL has changed")
	second := take(t, api, "report/1")
	require.Greater(t, second, first)
	shown := must(t, env, leased, "redis", "fleet", "show")
	require.Contains(t, shown, next[0].Addr)
	require.NotContains(t, shown, old[1].Addr)

	// The fleet is lost for good.
	for _, n := range []*testserver.RedisServer{old[0], next[0], next[1]} {
		n.Kill()
	}
	p := startSaying(t, "changing to "+next[2].Addr, env, leased, "redis", "fleet", "set", next[2].Addr, "--now")
	p.signal(syscall.SIGINT)
	require.Equal(t, 128+int(syscall.SIGINT), p.code())
	require.Contains(t, p.output.String(), "the change of the fleet continues")
	must(t, env, leased, "redis", "fleet", "set", next[2].Addr, "--now", "--force")
	require.Greater(t, take(t, api, "report/1"), second)
}

// `redis fleet remove` ends efficiency mode when no lock needs it, or when the nodes are gone for good.
func TestFleetRemove(t *testing.T) {
	t.Parallel()
	nodes, flags := startRedis(t, 1, "10m")
	_, api := single(t, flags...)
	env := endpoint(api)
	awaitVotes(t, env, 1)
	remove := []string{leased, "redis", "fleet", "remove"}
	must(t, env, leased, "policy", "set", "report/*", "--mode=efficiency")
	first := take(t, api, "report/1")
	require.Contains(t, exits(t, 2, env, remove...), `the locks of "report/" need Redis nodes; set a policy with mode`)
	nodes[0].Kill()
	migration := start(t, env, leased, "policy", "set", "report/*", "--mode=correctness")
	migration.says("report/* is migrating from efficiency to correctness")
	require.Contains(t, exits(t, 2, env, remove...), `the locks of "report/" are migrating; wait until`)
	removal := start(t, env, append(remove, "--force")...)
	removal.says("changing to no nodes; waiting for: leases of the old fleet to end")
	removal.signal(syscall.SIGINT)
	require.Equal(t, 128+int(syscall.SIGINT), removal.code(), &removal.output)
	require.Contains(t, must(t, env, append(remove, "--force", "--now")...), "removed the Redis nodes")
	require.Zero(t, migration.code(), &migration.output)
	got, err := post(t, api, "Acquire", `{"resource":"report/1"}`)
	require.NoError(t, err, "%+v", got)
	require.Equal(t, "correctness", got.Mode)
	require.Greater(t, got.Token, first)
	require.Contains(t, exits(t, 1, env, remove...), "the service has no Redis nodes")
}

// `redis init --redis` initializes nodes without a service, and rejects those of a
// service.
func TestStandaloneInit(t *testing.T) {
	t.Parallel()
	node := testserver.Redis(t)
	target := "--redis=" + node.Addr
	out := must(t, nil, leased, "redis", "init", target)
	require.Contains(t, out, "leased redis init --redis "+node.Addr+" --floor 0", "the command proposes a floor")
	require.Contains(t, out, "Otherwise tokens would repeat")
	out = must(t, nil, leased, "redis", "init", target, "--redis-namespace=other", "--redis-max-ttl=20s")
	require.Contains(t, out, "leased redis init --redis "+node.Addr+" --redis-max-ttl 20s --redis-namespace other "+
		"--floor 0")
	require.Contains(t, must(t, nil, leased, "redis", "init", target, "--redis-max-ttl=2s", "--floor=41"),
		"initialized 1 Redis node: tokens are above 41")
	out = must(t, nil, leased, "redis", "init", target, "--redis-max-ttl=2s")
	require.Contains(t, out, fmt.Sprint("--floor ", 41+(1<<26)), "a later floor must be above all granted tokens")

	nodes, flags := startRedis(t, 1, "10s")
	_, api := single(t, flags...)
	awaitVotes(t, endpoint(api), 1)
	out, code := call(t, nil, leased, "redis", "init", "--redis="+nodes[0].Addr, "--floor=0")
	require.Equal(t, 1, code, out)
	require.Contains(t, out, "belongs to a service")
}

// A restored service whose Redis nodes are empty waits for an operator. The proposed
// floor is above all granted tokens.
func TestFloorAfterRestore(t *testing.T) {
	t.Parallel()
	nodes, flags := startRedis(t, 3, "10s")
	_, api := single(t, flags...)
	env := endpoint(api)
	must(t, env, leased, "policy", "set", "report/*", "--mode=efficiency")
	before := take(t, api, "report/1")
	file := filepath.Join(t.TempDir(), "snapshot")
	must(t, env, leased, "snapshot", "save", file)
	for _, n := range nodes {
		require.NoError(t, n.Wipe())
	}
	must(t, env, leased, "snapshot", "restore", file, "--yes")
	for _, n := range nodes {
		require.NoError(t, n.Start())
	}
	eventually(t, func() bool { return redisStatus(t, env).ProposedFloor > 0 }, "for a proposed floor")
	out, code := call(t, env, leased, "acquire", "report/1")
	require.Equal(t, 122, code, out)
	f := redisStatus(t, env)
	require.False(t, f.Ready)
	require.Greater(t, f.ProposedFloor, before)
	require.Contains(t, must(t, env, leased, "redis", "init"),
		fmt.Sprintf("leased redis init --floor %d", f.ProposedFloor))
	out, code = call(t, env, leased, "redis", "init", fmt.Sprintf("--floor=%d", f.ProposedFloor-1))
	require.Equal(t, 2, code, out)
	require.Contains(t, out, fmt.Sprintf("give --floor %d, or --force", f.ProposedFloor))
	must(t, env, leased, "redis", "init", fmt.Sprintf("--floor=%d", f.ProposedFloor))
	require.Greater(t, take(t, api, "report/1"), f.ProposedFloor)
}
