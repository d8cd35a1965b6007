//go:build unix

package e2e

import (
	"context"
	"database/sql"
	"encoding/json"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/storagegate"
	"github.com/leased-project/leased/storagegate/filegate"
	"github.com/leased-project/leased/storagegate/redisgate"
)

// unbounded is a rule that admits absurd tokens.
var unbounded = fencing.Rule{MaxJump: fencing.Unbounded}

const absurd = fencing.MaxToken - 1

// granted acquires and releases a lock and returns the token. On a busy machine, the Redis nodes of dev may
// answer too late: then it is unknown whether the lock was granted, and it stays held for its TTL.
func granted(t *testing.T, api, lock string) fencing.Token {
	t.Helper()
	var code int
	var out, stderr string
	eventually(t, func() bool {
		code, out, stderr = runApart(t, "acquire", lock, "--endpoint", api, "-o", "json")
		return code != unavailable && code != uncertain && code != held
	}, "for %s: %s", lock, lazy(func() string { return stderr }))
	require.Zero(t, code, stderr)
	var got struct{ Token fencing.Token }
	require.NoError(t, json.Unmarshal([]byte(out), &got), out)
	eventually(t, func() bool {
		code, _, stderr = runApart(t, "release", lock, "--endpoint", api, "--token", got.Token.String())
		return code != unavailable && code != uncertain
	}, "for the release of %s: %s", lock, lazy(func() string { return stderr }))
	require.Zero(t, code, stderr)
	return got.Token
}

// resetGate resets the mark that a flag names. If the command fails because the nodes answer the release of its lock
// too late, it has reset the mark: then the resource is not locked out when the command runs again.
func resetGate(t *testing.T, api, lock, flag string) {
	t.Helper()
	repeated := false
	var code int
	var stderr string
	eventually(t, func() bool {
		code, _, stderr = runApart(t, "gate", "reset", lock, flag, "--endpoint", api)
		if code == unavailable || code == uncertain {
			repeated = true
			return false
		}
		return true
	}, "for the reset of %s: %s", lock, lazy(func() string { return stderr }))
	if repeated && code == 1 {
		require.Contains(t, stderr, "not locked out")
		return
	}
	require.Zero(t, code, stderr)
}

// The gates of a resource were closed by an absurd token. The operator resets each
// of them; the token of an earlier lease stays stale, that of a new one is admitted.
func TestGateReset(t *testing.T) {
	t.Parallel()
	_, api := dev(t, filepath.Join(t.TempDir(), "dev"))
	must(t, endpoint(api), leased, "policy", "set", "eff/*", "--mode=efficiency")
	ctx := t.Context()
	server := testserver.Redis(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr})
	t.Cleanup(func() { client.Close() })
	folder := t.TempDir()
	files, err := filegate.New(folder, unbounded)
	require.NoError(t, err)
	for _, lock := range []string{"orders/42", "eff/42"} { // in correctness and in efficiency mode
		resource := fencing.Resource(lock)
		for flag, gate := range map[string]interface {
			Enter(ctx context.Context, resource fencing.Resource, token fencing.Token) error
			Mark(ctx context.Context, resource fencing.Resource) (fencing.Token, error)
		}{"--redis=" + server.Addr: redisgate.New(client, unbounded), "--files=" + folder: files} {
			old := granted(t, api, lock)
			require.NoError(t, gate.Enter(ctx, resource, old))
			code, _, stderr := runApart(t, "gate", "reset", lock, flag, "--endpoint", api)
			require.Equal(t, 1, code, "the mark is a token of the service")
			require.Contains(t, stderr, "not locked out")
			require.NoError(t, gate.Enter(ctx, resource, absurd))
			stale := granted(t, api, lock)
			require.ErrorIs(t, gate.Enter(ctx, resource, stale), fencing.ErrStale)
			resetGate(t, api, lock, flag)
			require.ErrorIs(t, gate.Enter(ctx, resource, stale), fencing.ErrStale, "a lease that ended before the reset")
			require.NoError(t, gate.Enter(ctx, resource, granted(t, api, lock)))
		}
	}
}

// The printed SQL lowers the mark of a database.
func TestGateResetPrintsSQL(t *testing.T) {
	t.Parallel()
	_, api := dev(t, filepath.Join(t.TempDir(), "dev"))
	db, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "app.db"))
	require.NoError(t, err)
	t.Cleanup(func() { db.Close() })
	run := func(text string) error {
		_, err := db.ExecContext(t.Context(), text)
		return err
	}
	fence := func(token fencing.Token) error {
		return run(`INSERT INTO leased_fence (resource, token) VALUES ('orders/42', ` + token.String() + `)`)
	}
	_, ddl, _ := runApart(t, "gate", "ddl", "--dialect", "sqlite")
	require.NoError(t, run(ddl))
	require.Error(t, fence(absurd), "the default bound")
	code, bound, stderr := runApart(t, "gate", "ddl", "--dialect", "sqlite", "--max-jump", fencing.MaxToken.String())
	require.Zero(t, code, stderr)
	require.NoError(t, run(bound))
	require.NoError(t, fence(absurd))

	stale := granted(t, api, "orders/42")
	require.Error(t, fence(stale), "the resource is closed")
	code, text, stderr := runApart(t, "gate", "reset", "orders/42", "--dialect", "sqlite", "--mark", absurd.String(),
		"--endpoint", api)
	require.Zero(t, code, stderr)
	require.NoError(t, run(text))
	require.Error(t, run(text), "the mark has changed")
	require.ErrorContains(t, fence(stale), "stale fencing token")
	require.NoError(t, fence(granted(t, api, "orders/42")))
}

func TestGateResetOfAProxy(t *testing.T) {
	t.Parallel()
	upstream, _, _ := slowService(t)
	p := startProxy(t, upstream, filepath.Join(t.TempDir(), "journal.db"))
	require.NoError(t, p.put(t, fencing.DefaultMaxJump, "quick"))
	reset := func(args ...string) (int, string) {
		code, _, stderr := runApart(t, append([]string{"gate", "reset", "orders/42", "--proxy", p.admin}, args...)...)
		return code, stderr
	}
	code, stderr := reset("--token", "52", "--mark", "60")
	require.Equal(t, 1, code)
	require.Contains(t, stderr, storagegate.ErrMarkChanged.Error())
	code, stderr = reset("--token", "52")
	require.Zero(t, code, stderr)
	require.ErrorIs(t, p.put(t, 51, "quick"), fencing.ErrStale)
	require.NoError(t, p.put(t, 53, "quick"))
}

func TestGateResetFlags(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		"the name of a resource":        {},
		"give one of --dialect":         {"orders/42"},
		"give one of":                   {"orders/42", "--dialect", "sqlite", "--redis", "127.0.0.1:1"},
		"--mark is required":            {"orders/42", "--dialect", "sqlite"},
		"use postgres, mysql or sqlite": {"orders/42", "--dialect", "oracle", "--mark", "5"},
		"no such file":                  {"orders/42", "--files", filepath.Join(t.TempDir(), "missing")},
		"must be a loopback address":    {"orders/42", "--proxy", "10.0.0.1:1"},
	} {
		code, out, stderr := runApart(t, append([]string{"gate", "reset"}, args...)...)
		require.Equal(t, 2, code, want+": "+strconv.Itoa(code)+" "+stderr)
		require.Empty(t, out)
		require.Contains(t, stderr, want)
	}
	code, out, stderr := runApart(t, "gate", "reset", "orders/42", "--dialect", "sqlite", "--mark", "52", "--token", "52")
	require.Equal(t, 1, code)
	require.Empty(t, out)
	require.Contains(t, stderr, "not locked out")
}
