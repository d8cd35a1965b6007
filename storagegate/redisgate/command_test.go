package redisgate_test

import (
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate/redisgate"
)

// A command must write only the checked key, neither the mark nor a key of another
// resource.
func TestCommandsWithSeveralKeysAreRefused(t *testing.T) {
	client := empty(t)
	const other = fencing.Resource("orders/43")
	for _, options := range [][]redisgate.Option{nil, {redisgate.AnySlot()}} {
		gate := redisgate.New(client, fencing.Rule{}, options...)
		theirs := redisgate.Key(other, ":text")
		require.NoError(t, gate.Do(t.Context(), orders, 34, func(tx *redisgate.Tx) error { tx.Set(text, "1"); return nil }))
		require.NoError(t, gate.Do(t.Context(), other, 50, func(tx *redisgate.Tx) error {
			tx.Set(theirs, "fenced")
			return nil
		}))
		for _, command := range [][]any{
			{"DEL", redisgate.MarkKey(orders)}, {"del", redisgate.MarkKey(orders)}, {"UNLINK", redisgate.MarkKey(orders)},
			{"RENAME", redisgate.MarkKey(orders)}, {"rename", theirs}, {"COPY", theirs, "REPLACE"}, {"MSET", "x", theirs, "x"},
			{"SORT", "STORE", theirs}, {"SMOVE", theirs, "x"}, {"LMOVE", theirs, "LEFT", "RIGHT"}, {"EVAL", 0}, {"FLUSHDB"},
			{"GET"},
		} {
			err := gate.Do(t.Context(), orders, 34, func(tx *redisgate.Tx) error {
				tx.Do(command[0].(string), text, command[1:]...)
				return nil
			})
			require.Error(t, err, "%v", command)
		}
		require.Equal(t, fencing.Token(34), markOf(t, gate))
		require.Equal(t, "fenced", client.Get(t.Context(), theirs).Val())
		require.Equal(t, "1", client.Get(t.Context(), text).Val())
	}
	gate := redisgate.New(client, fencing.Rule{})
	require.NoError(t, gate.Do(t.Context(), orders, 34, func(tx *redisgate.Tx) error {
		tx.Do("incrby", text, 2)
		tx.Do("EXPIRE", text, 1000)
		tx.Do("ZADD", redisgate.Key(orders, ":z"), 1, "x")
		tx.Del(list)
		return nil
	}))
	require.Equal(t, "3", client.Get(t.Context(), text).Val())
}

func TestRingIsRefused(t *testing.T) {
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}})
	defer ring.Close()
	gate := redisgate.New(ring, fencing.Rule{})
	require.ErrorIs(t, redisgate.Verify(t.Context(), ring), redisgate.ErrRing)
	require.ErrorIs(t, gate.Enter(t.Context(), orders, 1), redisgate.ErrRing)
	require.ErrorIs(t, gate.Do(t.Context(), orders, 1, func(tx *redisgate.Tx) error {
		tx.Set(text, 1)
		return nil
	}), redisgate.ErrRing)
	_, err := gate.Mark(t.Context(), orders)
	require.ErrorIs(t, err, redisgate.ErrRing)
}
