//go:build unix

package server_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/internal/wire"
	"github.com/leased-project/leased/lease/engine"
)

// confirmsNothing checks that a member says neither that a lock in fast/ is free, nor that a lease has ended.
func confirmsNothing(t *testing.T, address, lease string) {
	t.Helper()
	for path, body := range map[string]string{"/v1/inspect": `{"resource":"fast/a"}`, "/v1/renew": lease,
		"/v1/release": lease, "/v1/break": lease, "/v1/sign": lease} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			code, answer := post(t, address, path, body)
			require.Equal(t, http.StatusServiceUnavailable, code, answer)
		})
	}
}

// A member that has missed a migration does not say that a lock is free, or that a lease has ended, which may be held
// in the other mode.
func TestMemberThatMissedAMigrationConfirmsNothing(t *testing.T) {
	t.Parallel()
	c := startClusterWithRedis(t, 3, fleetOf(startRedis(t, 3), longTTL))
	stale := c.follower()
	require.NoError(t, stale.command.Process.Signal(syscall.SIGSTOP))
	var others []*member
	for _, m := range c.members {
		if m != stale {
			others = append(others, m)
		}
	}
	setMode(t, others[0].spec.API, "fast/", engine.Correctness)
	held := mustPost(t, others[0].spec.API, "/v1/acquire", `{"resource":"fast/a","ttl":"10m"}`)
	require.Equal(t, "correctness", held["mode"])
	for _, m := range others {
		m.kill()
	}
	require.NoError(t, stale.command.Process.Signal(syscall.SIGCONT))
	eventually(t, "it answers", func() bool { return stale.status() != nil })
	confirmsNothing(t, stale.spec.API, leaseName(held))
	t.Run("list", func(t *testing.T) {
		t.Parallel()
		code, answer := post(t, stale.spec.API, "/v1/list", `{"mode":"efficiency"}`)
		require.Equal(t, http.StatusServiceUnavailable, code, answer)
	})
}

// While a lock is migrating, the leader may complete the migration at any time. A member without a leader does not say
// that the lock is free, or that a lease has ended.
func TestMigratingLockNeedsTheLeader(t *testing.T) {
	t.Parallel()
	c := startClusterWithRedis(t, 3, fleetOf(startRedis(t, 3), longTTL))
	last := c.follower()
	startMigration(t, last.spec.API, "fast/", engine.Correctness, false)
	eventually(t, "it knows of the migration", func() bool {
		_, listed := post(t, last.spec.API, "/v1/list-policies", `{}`)
		policies, _ := listed["policies"].([]any)
		return len(policies) == 1 && policies[0].(map[string]any)["next"] != nil
	})
	mustPost(t, last.spec.API, "/v1/inspect", `{"resource":"fast/a"}`)
	for _, m := range c.members {
		if m != last {
			m.kill()
		}
	}
	eventually(t, "it knows no leader", func() bool {
		return last.status()["leader"] == nil && last.status()["serves"] != true
	})
	confirmsNothing(t, last.spec.API, `{"resource":"fast/a","token":7}`)
	api := pb.NewLeaseServiceClient(dial(t, last.spec.API))
	for _, wait := range []string{"0s", "1h"} { // the migration may be complete, and the client must ask another member
		_, err := api.Acquire(testContext(t), &pb.AcquireRequest{Resource: "fast/b", Wait: wait})
		err = wire.FromStatus(err)
		require.ErrorIs(t, err, engine.ErrUnavailable)
		require.ErrorContains(t, err, "knows no leader")
		require.ErrorContains(t, err, "is migrating from efficiency")
		require.False(t, errors.As(err, new(*engine.MigratingError)))
	}
}

// A member that was removed is not ready and grants nothing.
func TestRemovedMemberServesNothing(t *testing.T) {
	t.Parallel()
	c := startClusterWithRedis(t, 3, fleetOf(startRedis(t, 3), longTTL))
	removed := c.follower()
	mustPost(t, removed.spec.API, "/v1/acquire", `{"resource":"fast/a"}`)
	c.remove(removed.spec.ID, c.awaitLeader)
	eventually(t, "it is not ready", func() bool {
		code, _ := get(t, "http://"+removed.spec.API+"/readyz")
		return code == http.StatusServiceUnavailable
	})
	_, body := get(t, "http://"+removed.spec.API+"/readyz")
	require.Contains(t, body, "was removed")
	eventually(t, "it grants nothing", func() bool {
		code, _ := post(t, removed.spec.API, "/v1/acquire", `{"resource":"fast/b","ttl":"1s"}`)
		return code == http.StatusServiceUnavailable
	})
	code, answer := post(t, removed.spec.API, "/v1/inspect", `{"resource":"fast/a"}`)
	require.Equal(t, http.StatusServiceUnavailable, code, answer)
	eventually(t, "it says why", func() bool {
		_, answer := post(t, removed.spec.API, "/v1/acquire", `{"resource":"a"}`)
		return strings.Contains(fmt.Sprint(answer["message"]), "was removed from the cluster; use another")
	})
}
