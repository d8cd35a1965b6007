package redisconn

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// go-redis must not repeat a script, and must respect deadlines.
func TestOptionsOfGoRedis(t *testing.T) {
	t.Parallel()
	given := &redis.Options{Addr: "a:1", MaxRetries: 3, PoolSize: 50, ReadTimeout: time.Hour, Username: "u", Password: "p"}
	o := options(Config{Options: given, Timeout: time.Second})
	require.Equal(t, -1, o.MaxRetries)
	require.True(t, o.ContextTimeoutEnabled)
	require.Equal(t, 1, o.PoolSize)
	for _, limit := range []time.Duration{o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout} {
		require.Equal(t, time.Second, limit)
	}
	require.Equal(t, []string{"a:1", "u", "p"}, []string{o.Addr, o.Username, o.Password})
	require.Equal(t, 3, given.MaxRetries, "the caller's options are not changed")
}
