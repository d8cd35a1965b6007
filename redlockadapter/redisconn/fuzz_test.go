package redisconn

import (
	"errors"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// FuzzInfo checks that the INFO of a server, which may be broken or hostile, is read without a
// panic.
func FuzzInfo(f *testing.F) {
	f.Add("redis_version:7.4.0\r\nrole:master\r\nmaxmemory_policy:noeviction\r\nrun_id:1\r\nmaster_replid:1\r\n")
	f.Add("redis_version:\nserver_time_usec:99999999999999999999")
	f.Fuzz(func(t *testing.T, text string) {
		info := parseInfo(text)
		if info.check("a") == nil {
			require.NotEmpty(t, info["run_id"])
		}
	})
}

func TestReplyOf(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		value any
		err   error
		want  Reply
	}{
		"an integer":       {int64(7), nil, Reply{Int: 7}},
		"a string":         {"a", nil, Reply{Words: []string{"a"}}},
		"an array":         {[]any{"a", int64(7), nil, []any{"b"}}, nil, Reply{Words: []string{"a", "7", "", ""}}},
		"an empty array":   {[]any{}, nil, Reply{Words: []string{}}},
		"a null":           {nil, redis.Nil, Reply{Words: []string{""}}},
		"a connection end": {nil, broken, Reply{Err: broken, MaybeExecuted: true}},
	} {
		require.Equal(t, c.want, replyOf(c.value, c.err), name)
	}
}
