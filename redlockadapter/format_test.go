package redlockadapter_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/golden"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/redlockadapter"
	"github.com/leased-project/leased/redlockadapter/recovery"
)

// A node whose state was written by a newer build does not vote, and its status says so.
// The other nodes are still a quorum.
func TestNodeOfANewerFormatDoesNotVote(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 3).init(t)
	ctx := testContext(t)
	b := f.backend(t)
	held, err := b.Acquire(ctx, engine.NewSessionID(), longTTL, request(1, "a"))
	require.NoError(t, err)
	upgrade := func(node int) {
		require.NoError(t, f.client(t, node).HSet(ctx, keyOf(t, f, node), "format", "2").Err())
	}
	newer := func(err error) *engine.FormatError {
		var newer *engine.FormatError
		require.ErrorAs(t, err, &newer)
		require.ErrorContains(t, err, "upgrade to a build that reads version 2")
		return newer
	}
	upgrade(0)
	require.NoError(t, b.Renew(ctx, []Held{held})[0], "two nodes are a quorum")
	_, err = b.Acquire(ctx, engine.NewSessionID(), longTTL, request(1, "b"))
	require.NoError(t, err)
	status := b.NodeStatuses(ctx)[0]
	require.Equal(t, engine.FormatError{Format: "state of the Redis node", Found: 2, Newest: 1}, *newer(status.Err))
	require.Nil(t, status.Report.Live)
	require.ErrorContains(t, status.Err, "does not vote")

	upgrade(1)
	_, err = b.Acquire(ctx, engine.NewSessionID(), longTTL, request(1, "c"))
	require.ErrorIs(t, err, engine.ErrUnavailable)
	newer(err)
	require.Error(t, b.Renew(ctx, []Held{held})[0])
	_, err = b.Inspect(ctx, "a")
	newer(err)
	_, err = b.List(ctx, "", "", 10)
	newer(err)
	_, err = redlockadapter.New(ctx, f.config)
	newer(err)
	require.Error(t, redlockadapter.Init(ctx, f.config, 1), "nor is it initialised again")
	for node := range 2 {
		fields, err := f.client(t, node).HGetAll(ctx, keyOf(t, f, node)).Result()
		require.NoError(t, err)
		require.Equal(t, "2", fields["format"])
		require.Empty(t, fields["join"])
	}
}

// A restarted node whose former life has a newer format is not made a voter of this one.
func TestFormerLifeOfANewerFormat(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 3).init(t)
	ctx := testContext(t)
	b := f.backend(t)
	key, run := keyOf(t, f, 0), serverOf(t, b, 0)
	server := f.client(t, 0)
	require.NoError(t, server.HSet(ctx, key, "format", "2").Err())
	former := fmt.Sprintf("%s:0123456789abcdef:node", "{"+redlockadapter.DefaultNamespace+"}")
	require.NoError(t, server.Rename(ctx, key, former).Err())
	require.NoError(t, server.Set(ctx, "{"+redlockadapter.DefaultNamespace+"}:life", "0123456789abcdef", 0).Err())
	var newer *engine.FormatError
	require.ErrorAs(t, b.NodeStatuses(ctx)[0].Err, &newer)
	require.NoError(t, b.Join(ctx, 0, run, "join", 1))
	_, err := b.Initialise(ctx, 0, run, recovery.Range{Join: "join", Version: 1, Floor: 1, Ceiling: 2})
	require.ErrorContains(t, err, "newer build")
}

// keyOf returns the key of the state of a node.
func keyOf(t *testing.T, f *fleet, node int) string {
	t.Helper()
	keys, err := f.client(t, node).Keys(testContext(t), "*:node").Result()
	require.NoError(t, err)
	require.Len(t, keys, 1)
	return keys[0]
}

// TestGoldenNode loads the keys of version 1 into a real server, with the names of this
// server in place of LIFE, FLEET and MEMBER. This build continues where they end, and writes
// the same fields.
func TestGoldenNode(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 1).init(t)
	ctx := testContext(t)
	server := f.client(t, 0)
	key := keyOf(t, f, 0)
	fresh, err := server.HGetAll(ctx, key).Result()
	require.NoError(t, err)
	require.Equal(t, fieldsOf(t, "{leased}:LIFE:node"), keysOf(fresh))
	require.NoError(t, server.FlushAll(ctx).Err())
	loadGolden(t, server, strings.NewReplacer("LIFE", strings.Split(key, ":")[1], "FLEET", fresh["fleet"], "MEMBER",
		fresh["member"],
		"UNTIL", fmt.Sprint(time.Now().Add(time.Hour).UnixMilli())))

	f.config.IdleCounters = 100 * 365 * 24 * time.Hour // no sweep removes records of the past
	b := f.backend(t)
	status, err := b.Inspect(ctx, "orders/42")
	require.NoError(t, err)
	require.Len(t, status.Holders, 1)
	holder := status.Holders[0]
	holder.TTL = 0
	require.Equal(t, engine.Party{Holder: "worker 1", User: "ann@example.org", Session: engine.SessionID{1}, Nonce: 7,
		Token:    41,
		Metadata: map[string]string{"job": "7"}, Since: time.UnixMilli(1763251200000)}, holder)
	require.Equal(t, []engine.Party{{Holder: "host 9", Since: time.UnixMicro(1763251200000000)}}, status.Waiters)
	cause, err := b.Ended(ctx, "orders/43", engine.SessionID{2}, 1)
	require.NoError(t, err)
	require.Equal(t, "broken", cause)
	held, err := b.Find(ctx, "orders/42", 41)
	require.NoError(t, err)
	require.NoError(t, b.Renew(ctx, []Held{held})[0])
	for lock, after := range map[fencing.Resource]fencing.Token{"orders/43": 40, "orders/44": 41} {
		next, err := b.Acquire(ctx, engine.NewSessionID(), longTTL, request(1, lock))
		require.NoError(t, err)
		require.Equal(t, after+1, next.Token)
	}
	require.NoError(t, b.Break(ctx, "orders/44", 42))
	written, err := server.HGetAll(ctx, strings.TrimSuffix(key, "node")+"lock:orders/44").Result()
	require.NoError(t, err)
	require.Equal(t, fieldsOf(t, "{leased}:LIFE:lock:orders/43"), keysOf(written))
}

// goldenNode returns the commands of the golden file.
func goldenNode(t *testing.T) (commands [][]string) {
	t.Helper()
	for line := range strings.Lines(string(golden.Read(t, "node.tsv"))) {
		commands = append(commands, strings.Split(strings.TrimSuffix(line, "\n"), "\t"))
	}
	return commands
}

// loadGolden runs the commands of the golden file.
func loadGolden(t *testing.T, server *redis.Client, names *strings.Replacer) {
	t.Helper()
	for _, command := range goldenNode(t) {
		var args []any
		for _, word := range command {
			args = append(args, names.Replace(word))
		}
		require.NoError(t, server.Do(testContext(t), args...).Err())
	}
}

// fieldsOf returns the fields of a key in the golden file.
func fieldsOf(t *testing.T, key string) []string {
	t.Helper()
	var fields []string
	for _, command := range goldenNode(t) {
		if command[1] == key {
			for i := 2; i < len(command); i += 2 {
				fields = append(fields, command[i])
			}
		}
	}
	slices.Sort(fields)
	return fields
}

func keysOf(fields map[string]string) []string { return slices.Sorted(maps.Keys(fields)) }
