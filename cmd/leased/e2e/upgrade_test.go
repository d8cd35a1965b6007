//go:build unix

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/client"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease"
)

// otherVersion is the version of the build that replaces the members.
const otherVersion = "v0.0.0-other"

// buildOther builds the binary again, as another version.
func buildOther(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "leased")
	args := append(append([]string{"build"}, buildFlags...), "-ldflags=-X main.version="+otherVersion, "-o", path, "..")
	out, err := exec.Command("go", args...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return path
}

// upgradeLoad is clients that use locks of both modes without a pause. Every operation must
// succeed, except that a busy machine may answer a release later than Release waits: the
// client repeats it in the background.
type upgradeLoad struct {
	t    *testing.T
	gate *fencing.Fence
	done atomic.Int64
	mu   sync.Mutex
	last map[fencing.Resource]fencing.Token
}

// work acquires and releases a lock until ctx ends.
func (u *upgradeLoad) work(ctx context.Context, c *lease.Client, lock fencing.Resource) {
	for ctx.Err() == nil && !u.t.Failed() {
		limited, cancel := context.WithTimeout(context.Background(), testTimeout)
		l, err := c.Acquire(limited, lock, lease.WithTTL(time.Minute))
		if err != nil {
			u.t.Errorf("acquire %s: %v", lock, err)
		} else {
			u.enter(lock, l.Token())
			if err := l.Release(limited); err != nil && !errors.Is(err, lease.ErrUncertain) &&
				!errors.Is(err, lease.ErrUnavailable) {
				u.t.Errorf("release %s: %v", lock, err)
			}
			u.done.Add(1)
		}
		cancel()
	}
}

// enter checks a grant: its token is larger than all earlier ones, and the gate admits it.
func (u *upgradeLoad) enter(lock fencing.Resource, token fencing.Token) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if token <= u.last[lock] {
		u.t.Errorf("%s: token %d after %d", lock, token, u.last[lock])
	}
	u.last[lock] = token
	if err := u.gate.Admit(lock, token); err != nil {
		u.t.Errorf("%s: %v", lock, err)
	}
}

// progress waits until more operations have completed.
func (u *upgradeLoad) progress() {
	u.t.Helper()
	before := u.done.Load()
	eventually(u.t, func() bool { return u.done.Load() >= before+20 || u.t.Failed() }, "for the clients to continue")
}

// TestRollingUpgrade replaces the binary of each member under load. No operation fails, held
// leases survive, and tokens keep growing. The commands are those of docs/OPERATIONS.md.
func TestRollingUpgrade(t *testing.T) {
	t.Parallel()
	other := buildOther(t)
	c := startTrioWithRedis(t, "5m")
	must(t, c.env(), leased, "policy", "set", "report/*", "--mode=efficiency")
	for _, api := range c.apis {
		take(t, api, "report/warm") // waits until each member has applied the policy
	}
	load := &upgradeLoad{t: t, gate: fencing.NewFence(fencing.Rule{MaxJump: fencing.Unbounded}),
		last: map[fencing.Resource]fencing.Token{}}
	clients, held := dialForUpgrade(t, c)
	must(t, c.env(), leased, "acquire", "kept/http", "--ttl=1h", "--holder=operator")

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var work sync.WaitGroup
	for i, one := range clients {
		work.Go(func() { load.work(ctx, one, "job/shared") })
		work.Go(func() { load.work(ctx, one, "report/shared") })
		work.Go(func() { load.work(ctx, one, fencing.Resource(fmt.Sprint("job/", i))) })
	}
	load.progress()
	upgradeMembers(t, c, other, load)
	load.progress()
	stop()
	work.Wait()
	checkUpgraded(t, c, load, held)
	t.Logf("%d operations", load.done.Load())
}

// upgradeMembers replaces the followers first, and the leader last.
func upgradeMembers(t *testing.T, c *trio, binary string, load *upgradeLoad) {
	t.Helper()
	leader := c.leader()
	for n := range 3 {
		i := (leader + 1 + n) % 3
		c.servers[i].signal(syscall.SIGTERM)
		require.Zero(t, c.servers[i].code())
		load.progress() // the others serve
		c.commands[i][0] = binary
		c.start(i)
		eventually(t, func() bool {
			_, code := call(t, endpoint(c.apis[i]), leased, "health", "--ready")
			return code == 0
		}, "for member %d to be ready", i)
		load.progress()
		must(t, c.env(), leased, "policy", "set", fmt.Sprintf("during/%d/*", n), "--mode=correctness", "--ttl=20s")
		c.awaitVersions(n + 1)
	}
}

// awaitVersions waits until this number of members have the other version: one that is slow to answer is shown
// without its version.
func (c *trio) awaitVersions(n int) {
	c.t.Helper()
	var status string
	eventually(c.t, func() bool {
		status = must(c.t, c.env(), leased, "cluster", "status")
		return strings.Count(versionsOf(status), otherVersion) == n
	}, "for %d members of the other version; the status is:\n%s", n, lazy(func() string { return status }))
}

// versionsOf returns the last column of the table of members.
func versionsOf(status string) string {
	var versions []string
	for line := range strings.Lines(status) {
		if fields := strings.Fields(line); len(fields) > 5 && (fields[2] == "yes" || fields[2] == "no") {
			versions = append(versions, fields[len(fields)-1])
		}
	}
	return strings.Join(versions, " ")
}

// dialForUpgrade returns clients, and a lease of each mode that they hold.
func dialForUpgrade(t *testing.T, c *trio) (clients []*lease.Client, held []*lease.Lease) {
	t.Helper()
	for range 2 {
		one, err := client.Dial(t.Context(), c.apis)
		require.NoError(t, err)
		t.Cleanup(func() { _ = one.Close(context.Background()) })
		clients = append(clients, one)
	}
	for _, lock := range []fencing.Resource{"kept/1", "report/kept"} {
		l, err := clients[0].Acquire(t.Context(), lock, lease.WithTTL(time.Minute))
		require.NoError(t, err)
		held = append(held, l)
	}
	return clients, held
}

// checkUpgraded checks that nothing that was acknowledged is lost.
func checkUpgraded(t *testing.T, c *trio, load *upgradeLoad, held []*lease.Lease) {
	t.Helper()
	for _, l := range held {
		require.NoError(t, l.Err(), "a held lease survives")
		out := must(t, c.env(), leased, "inspect", string(l.Resource()))
		require.Contains(t, out, l.Token().String())
		require.NoError(t, l.Release(t.Context()))
	}
	require.Contains(t, must(t, c.env(), leased, "inspect", "kept/http"), "operator")
	policies := must(t, c.env(), leased, "policy", "list")
	for n := range 3 {
		require.Contains(t, policies, fmt.Sprintf("during/%d/*", n))
	}
	for lock, last := range load.last {
		if strings.HasPrefix(string(lock), "job/") {
			token, err := fencing.ParseToken(tokenOf(t, c.env(), string(lock)))
			require.NoError(t, err)
			require.Greater(t, token, last)
		}
	}
	c.awaitVersions(3)
}
