package server_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/redlockadapter"
)

// TestMoveAsksAMajority: a granted token is on a majority of the masters, so
// fewer cannot tell how far tokens have come, and the lock stays closed.
func TestMoveAsksAMajority(t *testing.T) {
	var servers []*testserver.RedisServer
	var addresses []string
	for range 3 {
		s := testserver.Redis(t)
		servers, addresses = append(servers, s), append(addresses, s.Addr)
	}
	require.NoError(t, redlockadapter.Init(patient(t), redisConfig(addresses), fencing.None))
	s, _ := startOn(t, redisConfig(addresses))
	for _, r := range servers[:2] {
		r.Pause()
	}
	code, answer := post(t, s.Address(), "/v1/set-policy", `{"policy":{"prefix":"fast/","mode":"correctness"}}`)
	require.Equal(t, http.StatusServiceUnavailable, code, answer)
	require.Contains(t, answer["message"], "1 of 3 Redis nodes tell their largest token")
	_, listed := post(t, s.Address(), "/v1/list-policies", `{}`)
	require.Equal(t, []any{"fast/"}, listed["moving"])
	code, answer = post(t, s.Address(), "/v1/acquire", `{"resource":"fast/a","ttl":"2s"}`)
	require.Equal(t, http.StatusServiceUnavailable, code, answer)

	for _, r := range servers[:2] {
		r.Resume()
	}
	eventually(t, "the same call finishes it", func() bool {
		code, _ := post(t, s.Address(), "/v1/set-policy", `{"policy":{"prefix":"fast/","mode":"correctness"}}`)
		return code == http.StatusOK
	})
	_, answer = post(t, s.Address(), "/v1/acquire", `{"resource":"fast/a","ttl":"2s"}`)
	require.Equal(t, lease.Correctness.String(), answer["mode"], answer)
}
