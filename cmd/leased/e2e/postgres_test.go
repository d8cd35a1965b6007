//go:build unix

package e2e

import (
	"context"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/lease/postgres"
)

// database starts a PostgreSQL server with the functions, and returns its DSN and a connection.
func database(t *testing.T) (string, *pgx.Conn) {
	t.Helper()
	server := testserver.Postgres(t)
	conn, err := pgx.Connect(testserver.Context(t), server.DSN)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	_, err = conn.Exec(testserver.Context(t), postgres.DDL())
	require.NoError(t, err)
	return server.DSN, conn
}

// The commands that need only an engine work with locks in a database.
func TestPostgresCommands(t *testing.T) {
	t.Parallel()
	dsn, _ := database(t)
	must := func(args ...string) string {
		code, out, stderr := runApart(t, append([]string{"--postgres", dsn}, args...)...)
		require.Zero(t, code, "%v: %s", args, stderr)
		return out
	}
	fails := func(want int, says string, args ...string) {
		code, out, stderr := runApart(t, append([]string{"--postgres", dsn}, args...)...)
		require.Equal(t, want, code, "%v: %s%s", args, out, stderr)
		require.Contains(t, out+stderr, says)
	}
	take := func(args ...string) string { return tokenOf(t, []string{"LEASED_POSTGRES=" + dsn}, args...) }
	token := take("a/1", "a/2", "--ttl", "2m", "--holder", "ann")
	fails(120, "ann", "acquire", "a/2")
	fails(120, "ann", "run", "a/2", "--no-wait", "--", "true")
	fails(120, "waited", "acquire", "a/2", "--wait", "100ms")
	require.Contains(t, must("inspect", "a/2"), "ann")
	require.Contains(t, must("renew", "a/1", "--token", token), "for 2m0s")
	for _, command := range [][]string{{"list"}, {"list", "a/", "--sort", "held"}, {"top", "--once"},
		{"top", "--once", "--sort", "name"}} {
		out := must(command...)
		require.Contains(t, out, "a/1", command)
		require.Contains(t, out, "ann", command)
	}
	require.NotContains(t, must("list", "b/"), "ann")
	require.Contains(t, must("release", "a/2", "--token", token), "released")
	require.Contains(t, must("inspect", "a/1"), "free", "the set was released")
	require.Contains(t, must("release", "a/2", "--token", token), "nothing was released")
	fails(121, "not held", "renew", "a/1", "--token", token)
	out := must("run", "a/1", "--", "sh", "-c", "echo token $LEASED_TOKEN of $LEASED_RESOURCE")
	require.Regexp(t, `token \d+ of a/1`, out)
	fails(7, "", "run", "a/1", "--", "sh", "-c", "exit 7")
	broken := take("b")
	must("break", "b", "--token", broken)
	fails(121, "not held", "break", "b", "--token", broken)
	fails(124, "shared", "acquire", "b", "--shared")
	fails(124, "efficiency", "acquire", "b", "--mode", "efficiency")
	fails(2, "needs the lock service", "top", "--once", "--sort", "rate")
}

// renew --keep-alive reports a lease as lost once its TTL has passed, even while another transaction locks its row.
func TestPostgresRenewalWaitsForARow(t *testing.T) {
	t.Parallel()
	dsn, conn := database(t)
	env := []string{"LEASED_POSTGRES=" + dsn}
	token := tokenOf(t, env, "a", "--ttl", "10s")
	p := start(t, env, leased, "renew", "a", "--token", token, "--keep-alive")
	p.says("for 10s")
	tx, err := conn.Begin(testserver.Context(t))
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	_, err = tx.Exec(testserver.Context(t), "SELECT FROM leased_locks WHERE resource = 'a' FOR UPDATE")
	require.NoError(t, err)
	require.Equal(t, 121, p.code(), &p.output)
	p.says("consider it lost")
}

// A command says what is wrong with the database, or that it needs a service.
func TestPostgresErrors(t *testing.T) {
	t.Parallel()
	dsn, conn := database(t)
	for _, statement := range []string{"CREATE DATABASE empty", "CREATE ROLE nobody LOGIN", "CREATE ROLE locked NOLOGIN"} {
		_, err := conn.Exec(testserver.Context(t), statement)
		require.NoError(t, err)
	}
	replace := func(old, replacement string) string { return strings.Replace(dsn, old, replacement, 1) }
	for _, tt := range []struct {
		dsn  string
		args []string
		code int
		says string
	}{
		{replace("/postgres?", "/empty?"), []string{"list"}, 2, "leased postgres ddl"},
		{replace("/postgres?", "/missing?"), []string{"list"}, 2, `"missing" does not exist`},
		{replace("postgres@", "nobody@"), []string{"acquire", "a"}, 119, "EXECUTE"},
		{replace("postgres@", "locked@"), []string{"acquire", "a"}, 119, "not permitted to log in"},
		{"postgres://u:secret@127.0.0.1:1/x?sslmode=disable", []string{"inspect", "a"}, 122, "127.0.0.1:1"},
		{"postgres://u:secret@127.0.0.1:1/x?sslmode=disable", []string{"run", "a", "--no-wait", "--", "true"}, 122,
			"127.0.0.1:1"},
		{"postgres://u:secret@127.0.0.1:1/x?sslmode=disable", []string{"run", "a", "--wait", "200ms", "--", "true"}, 122,
			"the database was not available"},
		{"postgres://u:secret@host:port", []string{"list"}, 2, "LEASED_POSTGRES"},
		{dsn, []string{"cluster", "status"}, 2, "does not work with --postgres"},
		{dsn, []string{"watch", "a"}, 2,
			"does not work with --postgres: a database reports no events; use 'leased list --watch'"},
		{dsn, []string{"list", "--endpoint", "127.0.0.1:1"}, 2, "cannot be combined"},
	} {
		code, out, stderr := runApart(t, append([]string{"--postgres", tt.dsn}, tt.args...)...)
		require.Equal(t, tt.code, code, "%v: %s", tt.args, stderr)
		require.Contains(t, stderr, tt.says)
		require.NotContains(t, out+stderr, "secret")
	}
	env := []string{"LEASED_POSTGRES=" + dsn}
	p := start(t, env, leased, "list")
	require.Zero(t, p.code())
	p = start(t, env, leased, "cluster", "status")
	require.Equal(t, 2, p.code())
	require.Contains(t, p.output.String(), "needs a lock service, and LEASED_POSTGRES")
	p = start(t, env, leased, "list", "--endpoint", "127.0.0.1:1")
	require.Equal(t, 122, p.code(), "the flag overrides the variable")
}

// A lock moves from a service to a database and back, and its tokens keep growing.
func TestPostgresMove(t *testing.T) {
	t.Parallel()
	dsn, conn := database(t)
	_, endpoint := single(t)
	run := func(args ...string) (int, string) {
		code, out, stderr := runApart(t, args...)
		return code, out + stderr
	}
	must := func(args ...string) string {
		code, out := run(args...)
		require.Zero(t, code, "%v: %s", args, out)
		return out
	}
	service := []string{"--endpoint", endpoint}
	last := uint64(0)
	take := func(where ...string) {
		t.Helper()
		text := tokenOf(t, nil, append([]string{"a"}, where...)...)
		token, err := strconv.ParseUint(text, 10, 64)
		require.NoError(t, err)
		require.Greater(t, token, last)
		last = token
		must(append([]string{"release", "a", "--token", text}, where...)...)
	}
	for range 3 {
		take(service...)
	}
	both := append([]string{"--postgres", dsn}, service...)
	must(append([]string{"postgres", "import", "a"}, both...)...)
	for range 5 {
		take("--postgres", dsn)
	}

	code, out := run(append([]string{"postgres", "export", "a"}, both...)...)
	require.Equal(t, 124, code, out)
	require.Contains(t, out, "snapshot restore")
	take("--postgres", dsn) // nothing has changed

	file := filepath.Join(t.TempDir(), "snapshot")
	must(append([]string{"snapshot", "save", file}, service...)...)
	must(append([]string{"snapshot", "restore", file, "--yes"}, service...)...)
	must(append([]string{"postgres", "export", "a"}, both...)...)
	must(append([]string{"postgres", "export", "a"}, both...)...) // an interrupted move is repeated
	_, other := single(t)
	code, out = run("postgres", "export", "a", "--postgres", dsn, "--endpoint", other)
	require.Equal(t, 124, code, "another service, whose tokens are too small: %s", out)
	take(service...)
	moved := tokenOf(t, nil, append([]string{"a"}, service...)...)
	code, out = run(append([]string{"postgres", "export", "a", "--wait", "100ms"}, both...)...)
	require.Equal(t, 120, code, "a client of the service holds the lock: %s", out)
	must(append([]string{"release", "a", "--token", moved}, service...)...)
	code, out = run("acquire", "a", "--postgres", dsn)
	require.Equal(t, 120, code, "clients that were not moved get no token: %s", out)
	require.Contains(t, out, "another lock service")

	must(append([]string{"postgres", "import", "a"}, both...)...)
	take("--postgres", dsn)
	var held int
	require.NoError(t, conn.QueryRow(testserver.Context(t), "SELECT count(*) FROM leased_inspect('a')").Scan(&held))
	require.Zero(t, held)
}
