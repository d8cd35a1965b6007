//go:build unix

package e2e

import (
	"os/signal"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// lock holds a lock until a signal, elect campaigns again after a loss, and renew --keep-alive renews until the
// lease is lost.
func TestHoldUntilSignal(t *testing.T) {
	t.Parallel()
	server, api := single(t)
	env := endpoint(api)
	p := start(t, env, leased, "lock", "account/7", "--holder=first")
	p.says("holding account/7 with token 1; Ctrl-C releases it")
	exits(t, 120, env, leased, "lock", "account/7", "--no-wait")
	waiter := start(t, env, leased, "lock", "account/7")
	waiter.says("held by first")
	waiter.signal(syscall.SIGTERM)
	require.Equal(t, 143, waiter.code())
	if hangup := syscall.SIGHUP; signal.Ignored(hangup) { // the tests run under nohup
		p.signal(syscall.SIGTERM)
	} else {
		p.signal(hangup)
	}
	require.Equal(t, 0, p.code(), &p.output)
	require.Contains(t, must(t, env, leased, "inspect", "account/7"), "free")

	p = start(t, env, leased, "lock", "account/7", "--output=json")
	p.says(`{"event":"held","mode":"correctness","resource":"account/7","token":2}`)
	must(t, env, leased, "break", "account/7", "--token=2")
	require.Equal(t, 121, p.code(), &p.output)
	p.says("was lost")

	p = start(t, env, leased, "elect", "scheduler", "--holder=host-1")
	p.says("leading scheduler with token 3; Ctrl-C steps down")
	must(t, env, leased, "break", "scheduler", "--token=3")
	p.says("lost scheduler with token 3; campaigning again")
	p.says("leading scheduler with token 4")
	p.signal(syscall.SIGTERM)
	require.Equal(t, 0, p.code(), &p.output)
	require.Contains(t, must(t, env, leased, "inspect", "scheduler"), "free")

	must(t, env, leased, "acquire", "job", "--ttl=10s")
	p = start(t, env, leased, "renew", "job", "--token=5", "--keep-alive")
	p.says("renewed job with token 5 for 10s")
	must(t, env, leased, "break", "job", "--token=5")
	require.Equal(t, 121, p.code(), &p.output)

	require.Contains(t, must(t, env, leased, "health", "--output=json"), `"ok": true`)
	out, code := call(t, env, leased, "health", "--endpoint=127.0.0.1:1", "--output=json")
	require.Equal(t, 122, code)
	require.Contains(t, out, `"ok": false`)

	must(t, env, leased, "acquire", "job", "--ttl=10s")
	p = start(t, env, leased, "renew", "job", "--token=6", "--keep-alive")
	p.says("renewed job with token 6 for 10s")
	server.signal(syscall.SIGKILL)
	require.Equal(t, 121, p.code(), &p.output)
	p.says("consider it lost")
}
