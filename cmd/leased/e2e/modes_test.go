//go:build unix

package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// startTrioWithRedis starts three members with three Redis nodes.
func startTrioWithRedis(t *testing.T, maxTTL string) *trio {
	t.Helper()
	_, flags := startRedis(t, 3, maxTTL)
	return startTrioWith(t, flags)
}

// startTrioWith starts three members with more flags.
func startTrioWith(t *testing.T, flags []string) *trio {
	t.Helper()
	c := newTrio(t)
	for i := range c.commands {
		c.commands[i] = append(c.commands[i], flags...)
		c.start(i)
	}
	c.complete()
	return c
}

// Every member serves locks in efficiency mode, even while there is no leader.
func TestEfficiencyAtAnyMember(t *testing.T) {
	t.Parallel()
	c := startTrioWithRedis(t, "5m")
	env := c.env()
	must(t, env, leased, "policy", "set", "report/*", "--mode=efficiency")
	leader := c.leader()
	first, second := c.apis[(leader+1)%3], c.apis[(leader+2)%3]
	for _, api := range c.apis {
		take(t, api, "report/warm") // waits until each member has applied the policy
	}

	got, err := post(t, first, "Acquire", `{"resource":"report/1","ttl":"5m","holder":"ann"}`)
	require.NoError(t, err, "%+v", got)
	require.Equal(t, "efficiency", got.Mode)
	lease := fmt.Sprintf(`{"resource":"report/1","token":%d}`, got.Token)
	var renewed string
	require.NoError(t, curl(t, "http://"+second+"/v1/renew", lease, &renewed), renewed)
	require.Contains(t, renewed, fmt.Sprintf(`"tokens":[%d]`, got.Token))
	require.Contains(t, must(t, endpoint(second), leased, "renew", "report/1", fmt.Sprintf("--token=%d", got.Token)),
		"renewed report/1")
	refused, err := post(t, second, "Acquire", `{"resource":"report/1"}`)
	require.Error(t, err)
	require.Equal(t, "held", refused.Code)
	require.Regexp(t, fmt.Sprintf(`holder +ann +- +%d `, got.Token), must(t, endpoint(second), leased, "inspect",
		"report/1"))
	_, err = post(t, c.apis[leader], "Release", lease)
	require.NoError(t, err)
	require.Contains(t, must(t, endpoint(first), leased, "inspect", "report/1"), "report/1: free")

	// One member is left: there is no leader, and efficiency mode still works.
	for _, i := range []int{leader, (leader + 2) % 3} {
		c.servers[i].signal(syscall.SIGKILL)
		c.servers[i].code()
	}
	alone := endpoint(first)
	watch := start(t, alone, leased, "watch", "report/2", "--output=json")
	watch.says(`"type":"synced"`)
	token := tokenOf(t, alone, "report/2", "--ttl=5m", "--holder=ben")
	require.Regexp(t, `report/2 +efficiency +ben +- +`+token, must(t, alone, leased, "list", "--mode=efficiency"))
	var out string
	const advice = "`leased top --once` shows the state of one member, and `leased list --mode efficiency` works " +
		"without a leader"
	eventually(t, func() bool { // the last member may lead for a moment, and then lose an entry
		var code int
		out, code = call(t, c.env(), leased, "list")
		require.Equal(t, 122, code, out)
		return strings.Contains(out, advice)
	}, "for the answer of the last member, which matters more than unreachable members; it was:\n%s",
		lazy(func() string { return out }))
	watch.says(`"holder":"ben"`)
	must(t, alone, leased, "renew", "report/2", "--token="+token)
	must(t, alone, leased, "break", "report/2", "--token="+token)
	watch.says(`"type":"broken"`)
	must(t, alone, leased, "run", "report/2", "--no-wait", "--", "true")
	must(t, alone, leased, "run", "report/2", "--no-wait", "--no-redis", "--", "true")

	// Restarted, it has not applied its log and does not know that there are Redis nodes.
	last := (leader + 1) % 3
	c.servers[last].signal(syscall.SIGKILL)
	c.servers[last].code()
	c.start(last)
	eventually(t, func() bool {
		out, code := call(t, alone, leased, "redis", "status")
		require.Equal(t, 122, code, out)
		return strings.Contains(out, "leader")
	}, "for the restarted member")
}

// A leader that stops does not release leases in efficiency mode.
func TestStopReleasesNothing(t *testing.T) {
	t.Parallel()
	c := startTrioWithRedis(t, "5m")
	env := c.env()
	must(t, env, leased, "policy", "set", "report/*", "--mode=efficiency")
	token := tokenOf(t, env, "report/1", "--ttl=5m", "--holder=ann")
	old := c.leader()
	c.servers[old].signal(syscall.SIGTERM)
	require.Zero(t, c.servers[old].code())
	c.leader()
	require.Regexp(t, `report/1 +efficiency +ann +- +`+token, must(t, env, leased, "list"))
	exits(t, 120, env, leased, "acquire", "report/1")
	must(t, env, leased, "renew", "report/1", "--token="+token)
	must(t, env, leased, "release", "report/1", "--token="+token)
	require.Contains(t, must(t, env, leased, "inspect", "report/1"), "report/1: free")
}

// The mode changes back and forth under load: jobs continue one at a time, with
// growing tokens across both modes. The command prints what it waits for, and follows
// the migration to the next leader.
func TestMigrationUnderLoad(t *testing.T) {
	t.Parallel()
	c := startTrioWithRedis(t, "30s") // no job may lose its lease because the machine is busy
	env := c.env()
	dir := t.TempDir()
	journal, counter := filepath.Join(dir, "journal"), filepath.Join(dir, "counter")
	require.NoError(t, os.WriteFile(counter, []byte("0\n"), 0o600))
	work := fmt.Sprintf(`echo begin $LEASED_TOKEN >> %[1]s; n=$(cat %[2]s); sleep 0.02; echo $((n+1)) > %[2]s;
		echo end $LEASED_TOKEN >> %[1]s`, journal, counter)
	ctx, stop := context.WithCancel(t.Context())
	var jobs sync.WaitGroup
	var done atomic.Int64
	t.Cleanup(func() { stop(); jobs.Wait() })
	for range 2 {
		jobs.Go(func() {
			for ctx.Err() == nil {
				job := exec.Command(leased, "run", "report/load", "-q", "--", "sh", "-c", work)
				job.Env = append(os.Environ(), env...)
				if out, err := job.CombinedOutput(); err != nil {
					t.Errorf("a job failed: %v: %s", err, out)
					return
				}
				done.Add(1)
			}
		})
	}
	progress := func() {
		before := done.Load()
		eventually(t, func() bool { return done.Load() >= before+3 || t.Failed() }, "for the jobs to continue")
	}
	progress()
	for _, mode := range []string{"efficiency", "correctness", "efficiency"} {
		end := "locks report/* have mode " + mode
		shown := end
		if mode == "correctness" {
			shown = "report/* is migrating from efficiency to correctness; waiting for: "
		}
		migration := startSaying(t, shown, env, leased, "policy", "set", "report/*", "--mode="+mode)
		if mode == "correctness" {
			killed := c.leader() // the next leader completes the migration
			c.servers[killed].signal(syscall.SIGKILL)
			c.servers[killed].code()
		}
		require.Zero(t, migration.code(), &migration.output)
		require.Contains(t, migration.output.String(), end)
		require.Contains(t, must(t, env, leased, "inspect", "report/load"), "mode "+mode)
		require.NotContains(t, must(t, env, leased, "policy", "show"), "migrating")
		progress()
	}
	stop()
	jobs.Wait()
	checkJournal(t, journal, counter, int(done.Load()))
}

// A migration waits for holders, and can be canceled, or completed with --now. An
// interrupt of the command does not cancel it.
func TestMigrationIsCanceledOrForced(t *testing.T) {
	t.Parallel()
	_, flags := startRedis(t, 3, "10s")
	_, api := single(t, flags...)
	env := endpoint(api)
	token := tokenOf(t, env, "report/1", "--ttl=10m", "--holder=ann")

	migration := start(t, env, leased, "policy", "set", "report/*", "--mode=efficiency")
	migration.says("report/* is migrating from correctness to efficiency; waiting for:")
	out, code := call(t, env, leased, "acquire", "report/2")
	require.Equal(t, 122, code, out)
	require.Contains(t, out, "from correctness to efficiency")
	shown := must(t, env, leased, "policy", "show", "report/*")
	require.Regexp(t, `report/\* +correctness, migrating to efficiency`, shown)
	require.Contains(t, shown, "holder")
	out, code = call(t, env, leased, "policy", "set", "report/*", "--mode=correctness")
	require.Equal(t, 2, code, out)
	require.Contains(t, out, "abort")
	must(t, env, leased, "policy", "set", "report/*", "--abort")
	require.Equal(t, 1, migration.code(), &migration.output)
	require.Contains(t, migration.output.String(), "was aborted")
	require.Contains(t, must(t, env, leased, "inspect", "report/1"), "ann", "the holder keeps its lease")
	must(t, env, leased, "run", "report/2", "--", "true")
	out, code = call(t, env, leased, "policy", "set", "report/*", "--abort")
	require.Equal(t, 2, code, out)

	migration = start(t, env, leased, "policy", "set", "report/*", "--mode=efficiency")
	migration.says("waiting for")
	migration.signal(syscall.SIGINT)
	require.Equal(t, 128+int(syscall.SIGINT), migration.code())
	require.Contains(t, migration.output.String(), "the migration of report/* continues; see `leased policy show "+
		"'report/*'`")
	require.Contains(t, must(t, env, leased, "policy", "show"), "migrating")
	out = must(t, env, leased, "policy", "set", "report/*", "--mode=efficiency", "--now")
	require.Contains(t, out, "locks report/* have mode efficiency")
	exits(t, 121, env, leased, "renew", "report/1", "--token="+token)
	fast := tokenOf(t, env, "report/1", "--ttl=10s", "--mode=efficiency")
	require.Greater(t, len(fast), len(token)-1)

	out = must(t, env, leased, "policy", "set", "report/*", "--mode=correctness", "--no-wait")
	require.Contains(t, out, "is migrating from efficiency to correctness")
	eventually(t, func() bool { return !strings.Contains(must(t, env, leased, "policy", "show"), "migrating") },
		"for the end of the migration")
	require.Contains(t, must(t, env, leased, "policy", "delete", "report/*"), "deleted the policy of report/*")
}
