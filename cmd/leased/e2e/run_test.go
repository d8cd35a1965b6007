//go:build unix

package e2e

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/internal/testserver"
)

func TestRunPassesOnTokenCodeAndSignals(t *testing.T) {
	t.Parallel()
	_, api := single(t)
	env := endpoint(api)
	out := must(t, env, leased, "run", "nightly", "--", "sh", "-c", "echo $LEASED_RESOURCE/$LEASED_TOKEN")
	require.Regexp(t, `^nightly/\d+\n$`, out)
	_, code := call(t, env, leased, "run", "nightly", "--", "sh", "-c", "exit 7")
	require.Equal(t, 7, code)
	_, code = call(t, env, leased, "run", "nightly", "--", "sh", "-c", "kill -KILL $$")
	require.Equal(t, 137, code)
	out, code = call(t, env, leased, "run", "nightly", "--", "no-such-command")
	require.Equal(t, 127, code, out)
	_, code = call(t, env, leased, "run", "nightly", "--", "/etc/passwd")
	require.Equal(t, 126, code)

	p := start(t, env, leased, "run", "nightly", "--", "sh", "-c",
		`trap "exit 9" TERM; echo ready; while :; do sleep 0.05; done`)
	p.says("ready")
	p.signal(syscall.SIGTERM)
	require.Equal(t, 9, p.code())
	require.Contains(t, must(t, env, leased, "inspect", "nightly"), "nightly: free")
}

// While `leased run` waits it shows the holder and handles signals.
func TestRunWaits(t *testing.T) {
	t.Parallel()
	_, api := single(t)
	env := endpoint(api)
	holder := start(t, env, leased, "run", "nightly", "--holder=ann", "--ttl=2m", "--", "sh", "-c",
		`trap "exit 0" USR1; echo ready; while :; do sleep 0.05; done`)
	holder.says("ready")

	out, code := call(t, env, leased, "run", "nightly", "--no-wait", "--", "true")
	require.Equal(t, 120, code, out)
	out, code = call(t, env, leased, "run", "nightly", "--wait=5s", "--", "true")
	require.Equal(t, 120, code, out)
	out, code = call(t, env, leased, "run", "nightly", "--mode=efficiency", "--", "true")
	require.Equal(t, 124, code, out)
	require.Contains(t, out, "correctness")
	require.Contains(t, out, "efficiency")

	var shown string
	eventually(t, func() bool { // its only line may be older than its place in the queue, or about a failed try
		quitter := start(t, env, leased, "run", "nightly", "--", "sh", "-c", "echo started")
		quitter.says(`waiting for "nightly"`)
		quitter.signal(syscall.SIGINT)
		require.Equal(t, 128+int(syscall.SIGINT), quitter.code())
		shown = quitter.output.String()
		require.NotContains(t, shown, "started")
		return strings.Contains(shown, "held by ann") && strings.Contains(shown, "number 1 of 1 in the queue")
	}, "for the holder and the place in the queue; the command printed:\n%s", lazy(func() string { return shown }))

	// USR2 arrives before the command starts, and then ends the command. Changes of the size of the terminal, which may
	// be many, do not displace it.
	waiter := start(t, env, leased, "run", "nightly", "--", "sleep", "1000")
	queued(t, env, "nightly", 1)
	for range 5000 { // those that arrive at the same time are one
		waiter.signal(syscall.SIGWINCH)
	}
	waiter.signal(syscall.SIGUSR2)
	holder.signal(syscall.SIGUSR1)
	require.Zero(t, holder.code())
	require.Equal(t, 128+int(syscall.SIGUSR2), waiter.code())
}

// nohup protects the command, and the wait for the lock.
func TestRunUnderNohup(t *testing.T) {
	t.Parallel()
	_, api := single(t)
	env := endpoint(api)
	nohup := `trap "" HUP; exec ` + leased + ` run nightly -- sh -c "$0"`
	holder := start(t, env, "sh", "-c", nohup, `trap "exit 9" USR1; echo ready; while :; do sleep 0.05; done`)
	holder.says("ready")
	waiter := start(t, env, "sh", "-c", nohup, "true")
	queued(t, env, "nightly", 1)
	waiter.signal(syscall.SIGHUP)
	holder.signal(syscall.SIGHUP)
	holder.signal(syscall.SIGUSR1)
	require.Equal(t, 9, holder.code())
	require.Zero(t, waiter.code())
}

// Ctrl-Z stops `leased run` while it waits, as it stops other programs, and not the command that starts later.
func TestRunStoppedWhileItWaits(t *testing.T) {
	t.Parallel()
	_, api := single(t)
	env := endpoint(api)
	holder := start(t, env, leased, "run", "nightly", "--", "sh", "-c",
		`trap "exit 0" USR1; echo ready; while :; do sleep 0.05; done`)
	holder.says("ready")
	own := &syscall.SysProcAttr{Setpgid: true} // SIGTSTP has no effect in a group that no shell controls
	waiter := startWith(t, own, env, leased, "run", "nightly", "--", "true")
	queued(t, env, "nightly", 1)
	waiter.signal(syscall.SIGTSTP)
	waiter.awaitStop()
	waiter.signal(syscall.SIGCONT)
	holder.signal(syscall.SIGUSR1)
	require.Zero(t, waiter.code())
}

// A command can clean up after the loss of its lease also if nobody reads the messages of `leased run` any more.
func TestRunWithoutReaderOfItsMessages(t *testing.T) {
	t.Parallel()
	_, api := single(t)
	env := endpoint(api)
	pipe := filepath.Join(t.TempDir(), "pipe")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	p := start(t, env, "sh", "-c", `exec 3<>"$0" 2>"$0" 3<&-; exec `+leased+` run nightly -- sh -c '
		exec 2>&1; trap "echo bye; exit 4" TERM; echo ready; while :; do sleep 0.05; done'`, pipe)
	p.says("ready")
	must(t, env, leased, "break", "nightly", "--token=1")
	p.says("bye")
	require.Equal(t, 121, p.code())
}

func TestRunSharedAndPermits(t *testing.T) {
	t.Parallel()
	_, api := single(t)
	env := endpoint(api)
	forever := []string{"--", "sh", "-c", "echo $LEASED_RESOURCE; sleep 1000"}
	run := func(args ...string) *process {
		return start(t, env, append(append([]string{leased, "run"}, args...), forever...)...)
	}
	first, second := run("readers", "--shared"), run("readers", "--shared")
	first.says("readers")
	second.says("readers")
	one, two := run("pool", "--permits=2"), run("pool", "--permits=2")
	one.says("pool")
	two.says("pool")
	slots := map[string]bool{strings.TrimSpace(one.output.String()): true, strings.TrimSpace(two.output.String()): true}
	require.Len(t, slots, 2, "each permit has its own resource name")
	_, code := call(t, env, leased, "run", "pool", "--permits=2", "--no-wait", "--", "true")
	require.Equal(t, 120, code)
	_, code = call(t, env, leased, "run", "readers", "--no-wait", "--", "true")
	require.Equal(t, 120, code)
}

// `leased run` is stopped or killed. When the next holder gets the lock, the command
// is dead, although it ignores SIGTERM.
func TestRunStoppedOrKilled(t *testing.T) {
	t.Parallel()
	_, api := single(t)
	env := endpoint(api)
	for name, signal := range map[string]syscall.Signal{"stopped": syscall.SIGSTOP, "killed": syscall.SIGKILL} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWitness(t)
			p := start(t, env, leased, "run", name, "--ttl=10s", "--", "sh", "-c", w.stubborn())
			w.awaitStart()
			p.signal(signal)
			must(t, env, leased, "acquire", name, "--wait=1m")
			require.True(t, w.dead(), "the command is alive, but the lock was granted to another holder")
		})
	}
}

// A short command keeps its lock until hosts whose clocks are late have skipped it.
func TestRunHoldsAtLeast(t *testing.T) {
	t.Parallel()
	_, api := single(t)
	env := endpoint(api)
	p := start(t, env, leased, "run", "nightly", "--at-least=1h", "--", "true")
	p.says("holding nightly for another ")
	exits(t, 120, env, leased, "run", "nightly", "--no-wait", "--", "true")
	p.signal(syscall.SIGTERM)
	require.Zero(t, p.code())
	must(t, env, leased, "run", "nightly", "--no-wait", "--at-least=1ms", "--", "true")
	exits(t, 7, env, leased, "run", "nightly", "--no-wait", "--", "sh", "-c", "exit 7")
	exits(t, 143, env, leased, "run", "nightly", "--at-least=1h", "--", "sh", "-c", "kill $$")
	exits(t, 2, env, leased, "run", "nightly", "--at-least=-1s", "--", "true")
}

// The service is gone: the command must end before the lease expires.
func TestRunWithoutService(t *testing.T) {
	t.Parallel()
	server, api := single(t)
	w := newWitness(t)
	p := start(t, endpoint(api), leased, "run", "nightly", "--ttl=10s", "--", "sh", "-c", w.stubborn())
	w.awaitStart()
	server.signal(syscall.SIGKILL)
	require.Equal(t, 121, p.code())
	require.True(t, w.dead())
	require.Contains(t, p.output.String(), "stopping the command")
}

// A wait ends in time although no member answers.
func TestRunWaitsForSilentMembers(t *testing.T) {
	t.Parallel()
	var silent []string
	for range 3 {
		l, err := net.Listen("tcp", "127.0.0.1:0") // connects, and never answers
		require.NoError(t, err)
		defer l.Close()
		silent = append(silent, l.Addr().String())
	}
	env := endpoint(strings.Join(silent, ","))
	began := time.Now()
	impatient := start(t, env, leased, "run", "nightly", "--no-wait", "--", "true")
	waiter := start(t, env, leased, "run", "nightly", "--wait=1s", "--", "true")
	require.Equal(t, 122, waiter.code())
	require.Less(t, time.Since(began), 40*time.Second, "far more than it takes on a busy machine")
	require.Contains(t, waiter.output.String(), "the service was not available for 1s")
	require.Equal(t, 122, impatient.code())
	require.Contains(t, impatient.output.String(), silent[0]+": no member of the lock service can be reached: "+
		"no connection within 1s")
}

// A command that is started before the service uses the TTL of the lock's policy nevertheless.
func TestRunBeforeTheService(t *testing.T) {
	t.Parallel()
	api, data := testserver.FreeAddr(t), filepath.Join(t.TempDir(), "one")
	serve := func() *process {
		p := start(t, nil, leased, "serve", "--id=one", "--data="+data, "--listen="+api, "--raft-listen=127.0.0.1:0",
			"--bootstrap-expect=1")
		healthy(t, api)
		return p
	}
	first := serve()
	env := endpoint(api)
	must(t, env, leased, "policy", "set", "nightly*", "--mode=correctness", "--ttl=50s")
	first.signal(syscall.SIGKILL)
	first.code()
	p := start(t, env, leased, "run", "nightly", "--grace=15s", "--", "sh", "-c",
		leased+` inspect nightly --output json; echo done`)
	p.says("waiting for")
	serve()
	p.says("done")
	require.Zero(t, p.code())
	require.Regexp(t, `"ttlLeft": "[45]\d[.s]`, p.output.String())
}

// `leased run` starts its command although its own file was replaced while it waited, as by an upgrade.
func TestRunOutlivesAnUpgrade(t *testing.T) {
	t.Parallel()
	_, api := single(t)
	env := endpoint(api)
	token := tokenOf(t, env, "nightly", "--ttl=10m")
	upgraded := filepath.Join(t.TempDir(), "leased")
	must(t, nil, "cp", leased, upgraded)
	p := start(t, env, upgraded, "run", "nightly", "--", "echo", "done")
	queued(t, env, "nightly", 1)
	require.NoError(t, os.Remove(upgraded))
	require.NoError(t, os.WriteFile(upgraded, []byte("#!/bin/sh\nexit 9\n"), 0o700))
	must(t, env, leased, "release", "nightly", "--token="+token)
	p.says("done")
	require.Zero(t, p.code())
}

func TestBreakStopsTheCommand(t *testing.T) {
	t.Parallel()
	_, api := single(t)
	env := endpoint(api)
	file := filepath.Join(t.TempDir(), "token")
	p := start(t, env, leased, "run", "nightly", "--", "sh", "-c", "echo $LEASED_TOKEN > "+file+"; echo ready; sleep 1000")
	p.says("ready")
	token := strings.TrimSpace(must(t, nil, "cat", file))
	must(t, env, leased, "break", "nightly", "--token="+token)
	require.Equal(t, 121, p.code())
	exits(t, 121, env, leased, "break", "nightly", "--token="+token)
}
