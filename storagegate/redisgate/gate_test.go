package redisgate_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/storagegate"
	"github.com/leased-project/leased/storagegate/gatetest"
	"github.com/leased-project/leased/storagegate/redisgate"
)

// shared is the server of all tests that do not stop it.
var shared = sync.OnceValues(func() (*testserver.RedisServer, error) { return testserver.StartRedis() })

func TestMain(m *testing.M) {
	code := m.Run()
	if server, err := shared(); err == nil {
		server.Close()
	}
	os.Exit(code)
}

func connect(t testing.TB, addr string) *redis.Client {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { client.Close() })
	return client
}

// empty removes all data of the shared server and returns a client.
func empty(t testing.TB) *redis.Client {
	t.Helper()
	server, err := shared()
	require.NoError(t, err)
	client := connect(t, server.Addr)
	require.NoError(t, client.FlushAll(t.Context()).Err())
	return client
}

// subject is a gate as a gatetest.Subject. The kinds differ in how they write.
type subject struct {
	*redisgate.Gate
	client redis.UniversalClient
	write  func(s *subject, ctx context.Context, resource fencing.Resource, token fencing.Token, value string) error
	read   func(s *subject, ctx context.Context, resource fencing.Resource) (string, error)
}

func (s *subject) Write(ctx context.Context, resource fencing.Resource, token fencing.Token, value string) error {
	return s.write(s, ctx, resource, token, value)
}

func (s *subject) Read(ctx context.Context, resource fencing.Resource) (string, error) {
	value, err := s.read(s, ctx, resource)
	if errors.Is(err, redis.Nil) {
		return "", nil
	}
	return value, err
}

func do(fill func(tx *redisgate.Tx, key, value string)) func(*subject, context.Context, fencing.Resource, fencing.Token,
	string) error {
	return func(s *subject, ctx context.Context, resource fencing.Resource, token fencing.Token, value string) error {
		return s.Do(ctx, resource, token, func(tx *redisgate.Tx) error {
			fill(tx, redisgate.Key(resource, ":data"), value)
			return nil
		})
	}
}

var pushScript = redisgate.NewScript(`redis.call('DEL', KEYS[1]) return redis.call('RPUSH', KEYS[1], ARGV[1])`)

var kinds = map[string]*subject{
	"set": {
		write: do(func(tx *redisgate.Tx, key, value string) { tx.Set(key, value) }),
		read: func(s *subject, ctx context.Context, resource fencing.Resource) (string, error) {
			return s.client.Get(ctx, redisgate.Key(resource, ":data")).Result()
		},
	},
	"hash": {
		write: do(func(tx *redisgate.Tx, key, value string) { tx.HSet(key, "field", value, "other", 1) }),
		read: func(s *subject, ctx context.Context, resource fencing.Resource) (string, error) {
			return s.client.HGet(ctx, redisgate.Key(resource, ":data"), "field").Result()
		},
	},
	"list": {
		write: do(func(tx *redisgate.Tx, key, value string) { tx.Del(key); tx.LPush(key, value) }),
		read: func(s *subject, ctx context.Context, resource fencing.Resource) (string, error) {
			return s.client.LIndex(ctx, redisgate.Key(resource, ":data"), 0).Result()
		},
	},
	"script": {
		write: func(s *subject, ctx context.Context, resource fencing.Resource, token fencing.Token, value string) error {
			_, err := s.Run(ctx, resource, token, pushScript, []string{redisgate.Key(resource, ":data")}, value)
			return err
		},
		read: func(s *subject, ctx context.Context, resource fencing.Resource) (string, error) {
			return s.client.LIndex(ctx, redisgate.Key(resource, ":data"), -1).Result()
		},
	},
}

func TestGate(t *testing.T) {
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			gatetest.Run(t, func(t *testing.T) gatetest.Opener {
				addr := empty(t).Options().Addr
				return func(t testing.TB, rule fencing.Rule) gatetest.Subject {
					client := connect(t, addr)
					return &subject{redisgate.New(client, rule), client, kind.write, kind.read}
				}
			})
		})
	}
}

// A cluster of one node refuses keys in different slots, like a large cluster.
func TestGateOnACluster(t *testing.T) {
	server := testserver.Redis(t, testserver.RedisClusterMode())
	admin := connect(t, server.Addr)
	require.NoError(t, admin.ClusterAddSlotsRange(t.Context(), 0, 16383).Err())
	require.Eventually(t, func() bool {
		return strings.Contains(admin.ClusterInfo(t.Context()).Val(), "cluster_state:ok")
	}, time.Minute, time.Millisecond)
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{server.Addr}})
	defer client.Close()
	for name, kind := range kinds {
		gate := &subject{redisgate.New(client, fencing.Rule{}), client, kind.write, kind.read}
		for _, resource := range []fencing.Resource{"orders/42", "a{b}c", "{a}b", "}{", "%7B", "100%"} {
			resource += fencing.Resource("/" + name)
			require.NoError(t, gate.Write(t.Context(), resource, 2, "x"), "%s", resource)
			require.ErrorIs(t, gate.Write(t.Context(), resource, 1, "y"), fencing.ErrStale)
			value, err := gate.Read(t.Context(), resource)
			require.NoError(t, err)
			require.Equal(t, "x", value)
		}
	}
}

// beforeScript is a hook that runs a function before each script is sent.
type beforeScript struct{ run func() }

func (h beforeScript) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h beforeScript) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h beforeScript) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if strings.HasPrefix(cmd.Name(), "eval") {
			h.run()
		}
		return next(ctx, cmd)
	}
}

// A newer holder enters immediately before the script is sent. The check must be in
// the script.
func TestScriptChecksTheToken(t *testing.T) {
	client := empty(t)
	newer := redisgate.New(connect(t, client.Options().Addr), fencing.Rule{})
	client.AddHook(beforeScript{func() { require.NoError(t, newer.Enter(t.Context(), "orders", 2)) }})
	gate := redisgate.New(client, fencing.Rule{})
	err := gate.Do(t.Context(), "orders", 1, func(tx *redisgate.Tx) error { tx.Set("orders", "stale"); return nil })
	require.ErrorIs(t, err, fencing.ErrStale)
	require.ErrorIs(t, client.Get(t.Context(), "orders").Err(), redis.Nil)
}

// Large tokens must be stored with all digits, not as 9.007199254741e+15.
func TestMarkIsStoredExactly(t *testing.T) {
	client := empty(t)
	gate := redisgate.New(client, fencing.Rule{MaxJump: fencing.Unbounded})
	for _, token := range []fencing.Token{999_999_999_999_999, 1_000_000_000_000_000, 1_000_000_000_000_001,
		fencing.MaxToken - 1, fencing.MaxToken} {
		for i, enter := range []func(fencing.Resource) error{
			func(r fencing.Resource) error { return gate.Enter(t.Context(), r, token) },
			func(r fencing.Resource) error {
				return gate.Do(t.Context(), r, token, func(tx *redisgate.Tx) error { tx.Set(redisgate.Key(r, ""), 1); return nil })
			},
			func(r fencing.Resource) error {
				return gate.Do(t.Context(), r, token, func(tx *redisgate.Tx) error {
					tx.RPush(redisgate.Key(r, "l"), 1)
					return nil
				})
			},
			func(r fencing.Resource) error {
				_, err := gate.Run(t.Context(), r, token, redisgate.NewScript("return 1"), nil)
				return err
			},
		} {
			resource := fencing.Resource(fmt.Sprint("r", i))
			require.NoError(t, enter(resource))
			require.Equal(t, token.String(), client.Get(t.Context(), redisgate.MarkKey(resource)).Val())
			var stale *fencing.StaleError
			require.ErrorAs(t, gate.Enter(t.Context(), resource, token-1), &stale)
			require.Equal(t, token, stale.Mark)
		}
	}
}

func TestKeysMustBeInTheSlotOfTheMark(t *testing.T) {
	client := empty(t)
	set := func(gate *redisgate.Gate, key string) error {
		return gate.Do(t.Context(), "orders/42", 1, func(tx *redisgate.Tx) error { tx.Set(key, 1); return nil })
	}
	gate := redisgate.New(client, fencing.Rule{})
	require.NoError(t, set(gate, "orders/42"), "the resource itself")
	require.NoError(t, set(gate, "{orders/42}:x"))
	require.NoError(t, set(gate, "x:{orders/42}"))
	require.ErrorContains(t, set(gate, "orders:42"), "slot")
	require.ErrorContains(t, set(gate, redisgate.MarkKey("orders/42")), "mark")
	_, err := gate.Run(t.Context(), "orders/42", 1, pushScript, []string{"elsewhere"}, 1)
	require.ErrorContains(t, err, "slot")
	anySlot := redisgate.New(client, fencing.Rule{}, redisgate.AnySlot())
	require.NoError(t, set(anySlot, "orders:42"))
	require.ErrorContains(t, set(anySlot, redisgate.MarkKey("orders/43")), "mark")
}

var _ storagegate.Gate[*redisgate.Tx] = (*redisgate.Gate)(nil)
