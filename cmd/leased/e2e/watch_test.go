//go:build unix

package e2e

import (
	"encoding/json"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// tokenOf acquires a lock and returns its token as text.
func tokenOf(t *testing.T, env []string, args ...string) string {
	t.Helper()
	var got struct{ Token json.Number }
	text := must(t, env, append([]string{leased, "acquire", "--output=json"}, args...)...)
	require.NoError(t, json.Unmarshal([]byte(text), &got), text)
	return got.Token.String()
}

// A watch prints each event once, and continues when the leader is killed.
func TestWatchContinuesWithNextLeader(t *testing.T) {
	t.Parallel()
	c := startTrio(t)
	env := c.env()
	all := start(t, env, leased, "watch", "job/*")
	one := start(t, env, leased, "watch", "job/1", "--output=json")
	one.says(`"type":"synced"`)

	first := tokenOf(t, env, "job/1", "--ttl=10m", "--holder=ann")
	second := tokenOf(t, env, "job/2", "--ttl=10m", "--holder=ben")
	tokenOf(t, env, "other/1")
	for _, text := range []string{"granted    job/1  ann  token " + first, "granted    job/2  ben  token " + second} {
		all.says(text)
	}
	one.says(`"holder":"ann"`)

	c.servers[c.leader()].signal(syscall.SIGKILL)
	for _, p := range []*process{all, one} {
		p.says("the watch continues when a leader is available")
	}
	must(t, env, leased, "release", "job/1", "--token="+first)
	must(t, env, leased, "break", "job/2", "--token="+second)
	tokenOf(t, env, "job/3", "--ttl=10m", "--holder=cid")
	all.says("granted    job/3  cid")
	eventually(t, func() bool {
		out := all.output.String()
		return (strings.Contains(out, "released   job/1") || strings.Contains(out, "ended      job/1")) &&
			(strings.Contains(out, "broken     job/2") || strings.Contains(out, "ended      job/2"))
	}, "for the ends of two leases")
	require.Equal(t, 1, strings.Count(all.output.String(), "granted    job/1"), "the event was printed twice")
	require.NotContains(t, all.output.String(), "expired")
	require.NotContains(t, all.output.String(), "other/1")
	for _, p := range []*process{all, one} {
		p.signal(syscall.SIGINT)
		require.Equal(t, 128+int(syscall.SIGINT), p.code())
	}
}

// A watch fails at once if the service cannot be reached.
func TestWatchWithoutService(t *testing.T) {
	t.Parallel()
	out, code := call(t, endpoint("127.0.0.1:1"), leased, "watch", "job/*")
	require.Equal(t, 122, code, out)
}

// A watch leaves a leader that is stopped and does not answer.
func TestWatchLeavesStoppedLeader(t *testing.T) {
	t.Parallel()
	c := startTrio(t)
	w := start(t, c.env(), leased, "watch", "job/*", "--output=json")
	w.says(`"type":"synced"`)
	old := c.leader()
	c.servers[old].stop()
	w.says("the watch continues when a leader is available")
	tokenOf(t, c.env(), "job/1", "--holder=ann")
	w.says(`"holder":"ann"`)
}
