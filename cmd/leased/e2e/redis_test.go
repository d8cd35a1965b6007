//go:build unix

package e2e

import (
	"strings"
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

// A member that cannot reach its masters does not start, and says why.
func TestServeWithoutItsRedis(t *testing.T) {
	out, code := call(t, nil, leased, "serve", "--id=one", "--data="+t.TempDir()+"/one", "--listen=127.0.0.1:0", "--raft-listen=127.0.0.1:0",
		"--bootstrap-expect=1", "--redis=127.0.0.1:1")
	require.Equal(t, 1, code, out)
	require.Contains(t, out, "the member was not started: redis (127.0.0.1:1)")
}
