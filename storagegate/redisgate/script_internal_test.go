package redisgate

import (
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/testserver"
)

// Programs in other languages send fence.lua with their own script. The bound 0
// means the default, as in Go.
func TestFenceScriptIsBoundedByDefault(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: testserver.Redis(t).Addr})
	t.Cleanup(func() { client.Close() })
	admit := func(token, bound fencing.Token) any {
		reply, err := client.Eval(t.Context(), fenceLua+"\nreturn 1", []string{MarkKey("orders")}, token.String(),
			bound.String()).Result()
		require.NoError(t, err)
		return reply
	}
	require.Equal(t, []any{"jump", "0"}, admit(fencing.MaxToken-1, 0))
	require.Equal(t, []any{"jump", "0"}, admit(fencing.DefaultMaxJump+1, 0))
	require.Equal(t, int64(1), admit(fencing.DefaultMaxJump, 0))
	require.Equal(t, int64(1), admit(fencing.MaxToken-1, fencing.Unbounded))
}
