//go:build unix

package e2e

import (
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// A member that missed a change of the fleet becomes the only one. The nodes of the old fleet,
// which still run, say that they were replaced, and neither mode grants with what they know.
// With the present fleet, tokens keep growing.
func TestRecoveryOfAMemberThatMissedAFleet(t *testing.T) {
	t.Parallel()
	old, flags := startRedis(t, 1, "10s")
	present, _ := startRedis(t, 1, "10s")
	c := startTrioWith(t, flags)
	must(t, c.env(), leased, "policy", "set", "report/*", "--mode=efficiency")
	before := take(t, c.apis[0], "report/1")

	left := (c.leader() + 1) % 3
	c.servers[left].signal(syscall.SIGKILL)
	c.servers[left].code()
	must(t, c.env(), leased, "redis", "fleet", "set", present[0].Addr, "--now")
	last := take(t, c.apis[c.leader()], "report/1")
	require.Greater(t, last, before)
	for i, server := range c.servers {
		if i != left {
			server.signal(syscall.SIGKILL)
			server.code()
			require.NoError(t, os.RemoveAll(c.commands[i][5])) // --data
		}
	}
	must(t, nil, append(append([]string{leased, "cluster", "recover"}, c.commands[left][2:]...), "--yes")...)
	api := c.apis[left]
	env := endpoint(api)
	start(t, nil, append(append(c.commands[left][:10:10], "--bootstrap-expect=1"), flags...)...)
	eventually(t, func() bool {
		out, _ := call(t, env, leased, "redis", "status")
		return strings.Contains(out, "the fleet was replaced by "+present[0].Addr)
	}, "for the answer of %s", old[0].Addr)
	for _, lock := range []string{"report/1", "job/1"} {
		_, err := post(t, api, "Acquire", `{"resource":"`+lock+`"}`)
		require.Error(t, err, "%s: Redis may have granted larger tokens", lock)
	}
	must(t, env, leased, "redis", "fleet", "set", present[0].Addr, "--force")
	require.Greater(t, take(t, api, "report/1"), last)
	granted, err := post(t, api, "Acquire", `{"resource":"job/1"}`)
	require.NoError(t, err)
	require.Greater(t, uint64(granted.Token), before+1<<32)
}
