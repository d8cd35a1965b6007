//go:build unix

package e2e

import (
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/internal/testserver"
)

// New masters vote after an init, and one that was emptied comes back.
func TestRedisInitAndRejoin(t *testing.T) {
	var masters []*testserver.RedisServer
	var addresses []string
	for range 3 {
		m := testserver.Redis(t, testserver.RedisAppendOnly())
		masters, addresses = append(masters, m), append(addresses, m.Addr)
	}
	flags := []string{"--redis=" + strings.Join(addresses, ","), "--redis-max-ttl=1s"}
	_, api := single(t, flags...)
	env := endpoint(api)
	states := func() string { return must(t, env, leased, "redis", "status") }
	require.Equal(t, 3, strings.Count(states(), "empty"))
	out, code := call(t, env, append([]string{leased, "redis", "rejoin"}, flags...)...)
	require.Equal(t, 122, code)
	require.Contains(t, out, "leased redis init --floor")

	// The masters are those that the member names.
	require.Contains(t, must(t, env, leased, "redis", "init", "--floor=41"), "3 masters may vote")
	require.Equal(t, 3, strings.Count(states(), "votes"))
	require.Equal(t, 6, strings.Count(states(), " 41 "), "as largest token and as floor")

	require.NoError(t, masters[0].Wipe())
	require.NoError(t, masters[0].Start())
	require.Contains(t, must(t, env, append([]string{leased, "redis", "rejoin"}, flags...)...), "all 3 masters vote")
	require.NotContains(t, states(), "empty")
}

// startMasters starts masters that keep their data and may vote.
func startMasters(t *testing.T, n int, maxTTL string) (masters []*testserver.RedisServer, flags []string) {
	t.Helper()
	var addresses []string
	for range n {
		m := testserver.Redis(t, testserver.RedisAppendOnly())
		masters, addresses = append(masters, m), append(addresses, m.Addr)
	}
	flags = []string{"--redis=" + strings.Join(addresses, ","), "--redis-max-ttl=" + maxTTL}
	must(t, nil, append([]string{leased, "redis", "init", "--floor=0"}, flags...)...)
	return masters, flags
}

// A member that cannot reach its masters serves the correctness mode, says why
// it does not serve the other, and serves it when they are there.
func TestServeWithoutItsRedis(t *testing.T) {
	masters, flags := startMasters(t, 3, "20s")
	api := freeAddr(t)
	args := append([]string{leased, "serve", "--id=one", "--data=" + t.TempDir() + "/one", "--listen=" + api, "--raft-listen=127.0.0.1:0",
		"--bootstrap-expect=1"}, flags...)
	p := start(t, nil, args...)
	healthy(t, api)
	env := endpoint(api)
	must(t, env, leased, "policy", "set", "report/*", "--mode=efficiency")
	p.signal(syscall.SIGTERM)
	require.Zero(t, p.code())
	for _, m := range masters {
		m.Stop()
	}

	p = start(t, nil, args...)
	healthy(t, api)
	p.says("no majority of the Redis masters can be reached")
	token := tokenOf(t, env, "job/1", "--ttl=1m")
	must(t, env, leased, "release", "job/1", "--token="+token)
	must(t, env, leased, "run", "job/1", "--", "true")
	out, code := call(t, env, leased, "acquire", "report/1")
	require.Equal(t, 122, code, out)
	require.Contains(t, out, "has not reached a majority of its Redis masters")
	require.Equal(t, 3, strings.Count(must(t, env, leased, "redis", "status"), "out of reach"))

	for _, m := range masters {
		require.NoError(t, m.Start())
	}
	p.says("the Redis masters are reached")
	eventually(t, func() bool {
		_, code := call(t, env, leased, "acquire", "report/1", "--ttl=1s")
		return code == 0
	}, "for a lease of the efficiency mode")
}

// A leader that stops releases nothing: a lease of the efficiency mode goes on
// at the next one, which can prolong and release it, and lists it again.
func TestStopReleasesNothing(t *testing.T) {
	_, flags := startMasters(t, 3, "5m")
	c := newTrio(t)
	for i := range c.commands {
		c.commands[i] = append(c.commands[i], flags...)
		c.start(i)
	}
	healthy(t, c.apis...)
	env := c.env()
	must(t, env, leased, "policy", "set", "report/*", "--mode=efficiency")
	token := tokenOf(t, env, "report/1", "--ttl=5m", "--holder=ann")
	require.Regexp(t, `report/1 +efficiency +ann +`+token, must(t, env, leased, "list"))

	old := c.leader()
	c.servers[old].signal(syscall.SIGTERM)
	require.Zero(t, c.servers[old].code())
	next := c.apis[c.leader()]
	require.Regexp(t, `holds +ann +`+token+" ", must(t, env, leased, "inspect", "report/1"))
	_, code := call(t, env, leased, "acquire", "report/1")
	require.Equal(t, 120, code)
	var renewed string
	require.NoError(t, curl(t, "http://"+next+"/v1/renew", `{"resource":"report/1","token":`+token+`}`, &renewed), renewed)
	require.Contains(t, renewed, `"tokens":[`+token+`]`)
	require.Regexp(t, `report/1 +efficiency +ann +`+token, must(t, env, leased, "list"))
	must(t, env, leased, "release", "report/1", "--token="+token)
	require.Contains(t, must(t, env, leased, "inspect", "report/1"), "report/1: free")
}
