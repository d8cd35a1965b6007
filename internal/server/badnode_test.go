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

// One Redis server of three that may evict locks is a missing vote: a member that starts with
// it serves locks in efficiency mode. A change to a fleet with such a server is refused.
func TestOneUnusableRedisServer(t *testing.T) {
	t.Parallel()
	servers := append(startRedis(t, 2), testserver.Redis(t, testserver.RedisConfig("maxmemory-policy", "allkeys-lru")))
	s := startServer(t, func(c *server.Config) { c.Redis = fleetOf(servers, 10*time.Second) }).Address()
	setMode(t, s, "fast/", engine.Efficiency)
	acquired(t, s, `{"resource":"fast/a"}`, 0.0)

	other := startServer(t).Address()
	var code int
	var answer map[string]any
	eventually(t, "the servers answer in time", func() bool {
		code, answer = post(t, other, "/v1/set-fleet",
			fmt.Sprintf(`{"fleet":{"namespace":"test","maxTtl":"10s","addresses":["%s"]}}`,
				strings.Join(fleetOf(servers, longTTL).Addresses, `","`)))
		return code != http.StatusServiceUnavailable
	})
	require.Equal(t, http.StatusBadRequest, code, answer)
	require.Contains(t, answer["message"], "set it to noeviction")
	require.Contains(t, answer["message"], "force")
}
