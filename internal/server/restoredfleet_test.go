package server_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/internal/server"
	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/lease/engine"
)

// changeFleet sets the fleet of a service.
func changeFleet(t *testing.T, api string, servers []*testserver.RedisServer, flags string) {
	t.Helper()
	mustPost(t, api, "/v1/set-fleet", fmt.Sprintf(`{"fleet":{"namespace":"test","maxTtl":"10s","addresses":["%s"]}%s}`,
		strings.Join(fleetOf(servers, longTTL).Addresses, `","`), flags))
}

// A backup that is older than a change of the fleet is restored to a new cluster, while the
// nodes of the old fleet are up. They say that they were replaced, and the service does not
// use them.
func TestBackupOfAFleetThatWasReplaced(t *testing.T) {
	t.Parallel()
	old, present := startRedis(t, 3), startRedis(t, 3)
	s := startServer(t, func(c *server.Config) { c.Redis = fleetOf(old, 10*time.Second) })
	setMode(t, s.Address(), "fast/", engine.Efficiency)
	backup := saveSnapshot(t, s.Address())
	changeFleet(t, s.Address(), present, `,"now":true`)
	last := acquired(t, s.Address(), `{"resource":"fast/a"}`, 0.0)

	other := startServer(t).Address()
	restoreSnapshot(t, other, backup)
	var fleet map[string]any
	eventually(t, "the service knows that the fleet was replaced", func() bool {
		fleet = mustPost(t, other, "/v1/get-fleet", `{}`)
		return strings.Contains(fmt.Sprint(fleet["waitingFor"]), "the fleet was replaced by "+present[0].Addr) ||
			strings.Contains(fmt.Sprint(fleet["waitingFor"]), present[2].Addr)
	})
	code, answer := post(t, other, "/v1/provide-floor", fmt.Sprintf(`{"floor":%.0f}`, fleet["proposedFloor"]))
	require.Equal(t, http.StatusBadRequest, code)
	require.Contains(t, answer["message"], "leased redis fleet set --force")
	code, _ = post(t, other, "/v1/acquire", `{"resource":"slow/a"}`)
	require.NotEqual(t, http.StatusOK, code, "Redis may have granted larger tokens")
	for _, lock := range []string{"slow/a", "fast/a"} { // nobody holds them, so no wait ends with "held"
		code, answer = post(t, other, "/v1/acquire", fmt.Sprintf(`{"resource":%q,"wait":"1ns"}`, lock))
		require.Equal(t, http.StatusServiceUnavailable, code, "%s: %v", lock, answer)
	}

	changeFleet(t, other, present, `,"force":true`)
	acquired(t, other, `{"resource":"fast/a","wait":"1ns"}`, last["token"])
	acquired(t, other, `{"resource":"slow/a","wait":"1ns"}`, 0.0)
}

// A backup is restored to a new cluster whose configuration names the fleet, while its nodes are down. They have lost
// their data when they come back: both modes wait for a floor of the operator.
func TestBackupIsRestoredBeforeItsFleetIsUp(t *testing.T) {
	t.Parallel()
	redis := startRedis(t, 3)
	fleet := fleetOf(redis, longTTL)
	s := startOnFleet(t, fleet).Address()
	acquired(t, s, `{"resource":"fast/a"}`, 0.0)
	backup := saveSnapshot(t, s)
	for _, r := range redis {
		require.NoError(t, r.Wipe())
	}

	other := startServer(t, func(c *server.Config) { c.Redis = fleet }).Address()
	eventually(t, "the new cluster has the fleet", func() bool {
		return mustPost(t, other, "/v1/get-fleet", `{}`)["fleet"] != nil
	})
	restoreSnapshot(t, other, backup)
	code, answer := post(t, other, "/v1/acquire", `{"resource":"slow/a"}`)
	require.Equal(t, http.StatusServiceUnavailable, code, answer)
	for _, r := range redis {
		require.NoError(t, r.Start())
	}
	eventually(t, "the service waits for a floor", func() bool {
		return strings.HasPrefix(fmt.Sprint(mustPost(t, other, "/v1/get-fleet", `{}`)["waitingFor"]),
			"0 of 3 Redis nodes have reported their tokens")
	})
}

// The first fleet after a restore needs no operator, and correctness mode does not stop.
func TestFirstFleetAfterARestore(t *testing.T) {
	t.Parallel()
	s := startServer(t).Address()
	before := acquired(t, s, `{"resource":"slow/a"}`, 0.0)
	restoreSnapshot(t, s, saveSnapshot(t, s))
	changeFleet(t, s, startRedis(t, 3), "")
	acquired(t, s, `{"resource":"slow/a"}`, before["token"])
	setMode(t, s, "fast/", engine.Efficiency)
	acquired(t, s, `{"resource":"fast/a"}`, before["token"])
}

// The setting of a member does not bring back a fleet that an operator has removed.
func TestRemovedFleetStaysRemoved(t *testing.T) {
	t.Parallel()
	s := startServer(t, func(c *server.Config) { c.Redis = fleetOf(startRedis(t, 1), longTTL) }).Address()
	ready := func() bool { return mustPost(t, s, "/v1/get-fleet", `{}`)["ready"] == true }
	eventually(t, "the fleet is ready", ready)
	mustPost(t, s, "/v1/set-fleet", `{"fleet":{},"now":true,"force":true}`)
	eventually(t, "the fleet is removed", func() bool { return mustPost(t, s, "/v1/get-fleet", `{}`)["fleet"] == nil })
	code, answer := post(t, s, "/v1/set-policy", `{"policy":{"prefix":"fast/","mode":"efficiency"}}`) // would set it
	require.NotEqual(t, http.StatusOK, code, answer)
	require.Nil(t, mustPost(t, s, "/v1/get-fleet", `{}`)["fleet"])
}

// A backup that is older than the removal of the fleet is restored when the Redis nodes are long gone. The operator
// removes the fleet again: the locks migrate to correctness mode, with larger tokens than any that was granted.
func TestBackupOfAFleetThatWasRemoved(t *testing.T) {
	t.Parallel()
	redis := startRedis(t, 3)
	s := startOnFleet(t, fleetOf(redis, longTTL)).Address()
	acquired(t, s, `{"resource":"fast/a"}`, 0.0)
	backup := saveSnapshot(t, s)
	setMode(t, s, "fast/", engine.Correctness)
	mustPost(t, s, "/v1/set-fleet", `{"fleet":{},"now":true,"force":true}`)
	last := acquired(t, s, `{"resource":"fast/a"}`, 0.0)
	for _, r := range redis {
		r.Kill()
	}

	other := startServer(t).Address()
	restoreSnapshot(t, other, backup)
	removeLostFleet(t, other, last["token"])
}

// A fleet whose nodes are lost for good is removed without another one.
func TestLostFleetIsRemoved(t *testing.T) {
	t.Parallel()
	redis := startRedis(t, 3)
	s := startOnFleet(t, fleetOf(redis, longTTL)).Address()
	last := acquired(t, s, `{"resource":"fast/a"}`, 0.0)
	for _, r := range redis {
		r.Kill()
	}
	removeLostFleet(t, s, last["token"])
}

// removeLostFleet migrates the locks of "fast/" to correctness mode without the Redis nodes.
func removeLostFleet(t *testing.T, api string, above any) {
	t.Helper()
	code, answer := post(t, api, "/v1/set-fleet", `{"fleet":{},"now":true,"force":true}`)
	require.Equal(t, http.StatusBadRequest, code, answer)
	require.Contains(t, answer["message"], "set a policy with mode correctness first", "nobody could use the locks")
	startMigration(t, api, "fast/", engine.Correctness, true)
	code, answer = post(t, api, "/v1/set-fleet", `{"fleet":{},"now":true}`)
	require.Equal(t, http.StatusBadRequest, code, answer)
	require.Contains(t, answer["message"], "set force")
	mustPost(t, api, "/v1/set-fleet", `{"fleet":{},"now":true,"force":true}`)
	acquired(t, api, `{"resource":"fast/a"}`, above)
	require.True(t, hasMode(t, api, "fast/", engine.Correctness))
	require.Nil(t, mustPost(t, api, "/v1/get-fleet", `{}`)["fleet"])
}
