package server_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/internal/server"
	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/redlockadapter"
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

// slowConn is a connection to a server far away.
type slowConn struct{ net.Conn }

// Read delays each answer by more than the default of redis-timeout allows.
func (c slowConn) Read(b []byte) (int, error) {
	<-time.After(3 * redlockadapter.DefaultNodeTimeout)
	return c.Conn.Read(b)
}

// A change to Redis servers that are slow, but answer within redis-timeout, needs no force.
func TestFleetOfSlowServers(t *testing.T) {
	t.Parallel()
	servers := startRedis(t, 1)
	s := startServer(t, func(c *server.Config) {
		c.RedisTimeout = time.Minute
		c.RedisOptions = func(address string) *redis.Options {
			return &redis.Options{Addr: address, Dialer: func(ctx context.Context, network, address string) (net.Conn, error) {
				conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
				return slowConn{conn}, err
			}}
		}
	}).Address()
	code, answer := post(t, s, "/v1/set-fleet", fmt.Sprintf(
		`{"fleet":{"namespace":"test","maxTtl":"1m","addresses":["%s"]}}`, servers[0].Addr))
	require.Equal(t, http.StatusOK, code, answer)
}
