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

// startRedis starts n empty Redis nodes, and returns the flags that name them.
func startRedis(t *testing.T, n int, maxTTL string, options ...testserver.RedisOption) (nodes []*testserver.RedisServer, flags []string) {
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

// fleetOf is what `leased redis status` says.
type fleetOf struct {
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

func redisStatus(t *testing.T, env []string, flags ...string) (f fleetOf) {
	t.Helper()
	text := must(t, env, append([]string{leased, "redis", "status", "--output=json"}, flags...)...)
	require.NoError(t, json.Unmarshal([]byte(text), &f), text)
	return f
}

// votes is how many nodes vote.
func (f fleetOf) votes() (n int) {
	for _, node := range f.Nodes {
		if node.Error == "" && !node.Empty {
			n++
		}
	}
	return n
}

// awaitVotes waits until so many nodes vote.
func awaitVotes(t *testing.T, env []string, n int, flags ...string) {
	t.Helper()
	eventually(t, func() bool {
		text, code := call(t, env, append([]string{leased, "redis", "status", "--output=json"}, flags...)...)
		var f fleetOf
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
	_, err := post(t, api, "Release", fmt.Sprintf(`{"resource":%q,"token":%d}`, resource, got.Token))
	require.NoError(t, err)
	return got.Token
}

// A file with an efficiency policy is all that it takes: new Redis nodes need no
// step of their own. A node that was emptied comes back by itself, with tokens
// above all others; so do all of them.
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
	require.Greater(t, take(t, api, "report/1"), first, "two of three go on")
	require.NoError(t, nodes[0].Start())
	awaitVotes(t, env, 3)
	last := take(t, api, "report/1")

	for _, n := range nodes {
		require.NoError(t, n.Wipe())
	}
	for _, n := range nodes {
		require.NoError(t, n.Start())
	}
	require.Greater(t, take(t, api, "report/1"), last, "all of them had forgotten their tokens")
	awaitVotes(t, env, 3)
}

// A member that cannot reach its Redis nodes serves the correctness mode, says
// what is wrong, and serves the efficiency mode when they are there.
func TestServeWithoutItsRedis(t *testing.T) {
	t.Parallel()
	nodes, flags := startRedis(t, 3, "10s")
	api := freeAddr(t)
	args := append([]string{leased, "serve", "--id=one", "--data=" + t.TempDir() + "/one", "--listen=" + api, "--raft-listen=127.0.0.1:0",
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
	out = must(t, env, leased, "redis", "status")
	for _, n := range nodes {
		require.Regexp(t, `(?m)^`+n.Addr+` +unreachable: [^;]*refused`, out, "each node has its own error")
	}
	require.Contains(t, out, "not ready; waiting for: 0 of 3 Redis nodes vote, 2 are needed")
	var health string
	require.NoError(t, curl(t, "http://"+api+"/healthz", "", &health))
	require.Contains(t, health, "locks in correctness mode only: ")

	for _, n := range nodes {
		require.NoError(t, n.Start())
	}
	require.Greater(t, take(t, api, "report/1"), before)
}

// The fleet changes by command, while locks are taken: tokens only grow, and the
// old nodes grant nothing any more.
func TestFleetChanges(t *testing.T) {
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
	require.NotContains(t, must(t, env, leased, "redis", "fleet", "show"), "changing", "the old fleet serves")
	mixed := []string{old[0].Addr, next[0].Addr, next[1].Addr}
	out = must(t, env, append([]string{leased, "redis", "fleet", "set"}, mixed...)...)
	require.Contains(t, out, "3 Redis nodes serve the efficiency mode")
	require.Contains(t, out, "changing to", "it prints its progress")
	f := redisStatus(t, env)
	require.ElementsMatch(t, mixed, f.Fleet.Addresses)
	require.Equal(t, "10s", f.Fleet.MaxTTL, "it stays as it was")
	second := take(t, api, "report/1")
	require.Greater(t, second, first)
	shown := must(t, env, leased, "redis", "fleet", "show")
	require.Contains(t, shown, next[0].Addr)
	require.NotContains(t, shown, old[1].Addr)

	// The fleet is gone for good.
	for _, n := range []*testserver.RedisServer{old[0], next[0], next[1]} {
		n.Kill()
	}
	p := start(t, env, leased, "redis", "fleet", "set", next[2].Addr, "--now")
	p.says("changing to " + next[2].Addr)
	p.signal(syscall.SIGINT)
	require.Equal(t, 128+int(syscall.SIGINT), p.code())
	require.Contains(t, p.output.String(), "the change of the fleet goes on")
	must(t, env, leased, "redis", "fleet", "set", next[2].Addr, "--now", "--force")
	require.Greater(t, take(t, api, "report/1"), second)
}

// Nodes without a service are initialised directly; those of a service are not.
func TestStandaloneInit(t *testing.T) {
	t.Parallel()
	node := testserver.Redis(t)
	target := "--redis=" + node.Addr
	out := must(t, nil, leased, "redis", "init", target)
	require.Contains(t, out, "leased redis init --redis "+node.Addr+" --floor 0", "it proposes a floor and changes nothing")
	out = must(t, nil, leased, "redis", "init", target, "--redis-namespace=other", "--redis-max-ttl=20s")
	require.Contains(t, out, "leased redis init --redis "+node.Addr+" --redis-max-ttl 20s --redis-namespace other --floor 0")
	require.Contains(t, must(t, nil, leased, "redis", "init", target, "--floor=41"), "initialised 1 Redis node: tokens are above 41")
	out = must(t, nil, leased, "redis", "init", target)
	require.Regexp(t, `--floor 4\d{9}`, out, "a later one must be above all that was granted")

	nodes, flags := startRedis(t, 1, "10s")
	_, api := single(t, flags...)
	awaitVotes(t, endpoint(api), 1)
	out, code := call(t, nil, leased, "redis", "init", "--redis="+nodes[0].Addr, "--floor=0")
	require.Equal(t, 1, code, out)
	require.Contains(t, out, "belongs to a service")
}

// A restored service whose Redis nodes have forgotten everything waits for an
// operator: the proposed floor is above all tokens that were granted.
func TestFloorAfterARestore(t *testing.T) {
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
	require.Contains(t, must(t, env, leased, "redis", "init"), fmt.Sprintf("leased redis init --floor %d", f.ProposedFloor))
	out, code = call(t, env, leased, "redis", "init", fmt.Sprintf("--floor=%d", f.ProposedFloor-1))
	require.Equal(t, 2, code, out)
	require.Contains(t, out, fmt.Sprintf("give --floor %d, or --force", f.ProposedFloor))
	must(t, env, leased, "redis", "init", fmt.Sprintf("--floor=%d", f.ProposedFloor))
	require.Greater(t, take(t, api, "report/1"), f.ProposedFloor)
}
