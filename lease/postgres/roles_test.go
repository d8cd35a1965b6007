package postgres_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/lease/postgres"
)

// role creates a role that may acquire and nothing else, and returns a connection as it.
func role(t *testing.T, pool *pgxpool.Pool) *pgx.Conn {
	t.Helper()
	ctx := testserver.Context(t)
	config := pool.Config().ConnConfig
	schema := config.RuntimeParams["search_path"]
	name := "role_" + engine.NewSessionID().String()
	for _, statement := range []string{"CREATE ROLE " + name + " LOGIN", "GRANT USAGE ON SCHEMA " + schema + " TO " + name,
		"GRANT EXECUTE ON FUNCTION leased_acquire, leased_renew, leased_release, leased_hold, " +
			"leased_inspect, leased_list TO " + name} {
		_, err := pool.Exec(ctx, statement)
		require.NoError(t, err, statement)
	}
	config.User = name
	conn, err := pgx.ConnectConfig(ctx, config)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

const attemptOfAlice = "the attempt of alice"

// A role that may acquire cannot change tokens, leases of others, or the functions, also if the database gives it
// rights on everything that is new.
func TestRoles(t *testing.T) {
	t.Parallel()
	app := "app_" + engine.NewSessionID().String()
	defaults := func(kind string) string {
		return "DO $$ BEGIN EXECUTE format('ALTER DEFAULT PRIVILEGES IN SCHEMA %I GRANT ALL ON " + kind + " TO " + app +
			"', current_schema()); END $$"
	}
	pool := database(t, shared.Get(t).DSN, "CREATE ROLE "+app, defaults("TABLES"), defaults("SEQUENCES"),
		defaults("FUNCTIONS"))
	ctx := testserver.Context(t)
	alice, mallory := role(t, pool), role(t, pool)
	do(t, pool, "GRANT "+app+" TO "+mallory.Config().User)
	var token int64
	require.NoError(t, alice.QueryRow(ctx, "SELECT token FROM leased_acquire(ARRAY['a'], 'alice', '1 min', $1)",
		attemptOfAlice).Scan(&token))

	for _, statement := range []string{
		"UPDATE leased_locks SET expires = now()", "DELETE FROM leased_locks",
		"INSERT INTO leased_locks (resource) VALUES ('b')", "TRUNCATE leased_locks",
		"SELECT setval('leased_tokens', 1)", "SELECT nextval('leased_tokens')", "UPDATE leased_origin SET server = ''",
		"DELETE FROM leased_waiters",
		"SELECT leased_break('a', 1)", "SELECT leased_raise(1)", "SELECT leased_close('b')",
		"SELECT leased_end(ARRAY['a'], 'x', NULL)", "SELECT leased_wake('a')", "SELECT leased_next_token()",
		"SELECT leased_queue(ARRAY['a'], 'h', '1 min', 'an attempt of mallory', NULL, NULL, NULL)",
		"CREATE OR REPLACE FUNCTION leased_end(text[], text) RETURNS bigint LANGUAGE sql AS 'SELECT 1::bigint'",
		"CREATE TABLE mine ()", "SELECT attempt FROM leased_locks",
	} {
		_, err := mallory.Exec(ctx, statement)
		require.ErrorContains(t, err, "42501", statement)
	}

	var released, broken bool
	require.NoError(t, mallory.QueryRow(ctx, "SELECT released FROM leased_release(ARRAY['a'], $1)",
		attemptOfAlice).Scan(&released))
	require.False(t, released, "the attempt of another role")
	var extended int
	require.NoError(t, mallory.QueryRow(ctx, "SELECT count(*) FROM leased_renew(ARRAY['a'], ARRAY[$1], '1 day')",
		attemptOfAlice).Scan(&extended))
	require.Zero(t, extended)
	var shown *string
	require.NoError(t, mallory.QueryRow(ctx, "SELECT attempt FROM leased_inspect('a')").Scan(&shown))
	require.Nil(t, shown, "others do not see the attempt")
	_, err := mallory.Exec(ctx, "SELECT token FROM leased_acquire(ARRAY['a'], 'alice', '1 min', $1)", attemptOfAlice)
	require.ErrorContains(t, err, "LL001", "the attempt of another role is not handed out")

	require.NoError(t, pool.QueryRow(ctx, "SELECT leased_break('a', $1)", token).Scan(&broken))
	require.True(t, broken)
	do(t, pool, postgres.DDL())
	require.Positive(t, grant(t, alice, "a"), "another installation keeps the rights")
}

// Temporary tables and functions of the caller do not shadow those of leased.
func TestShadows(t *testing.T) {
	t.Parallel()
	pool := database(t, shared.Get(t).DSN)
	ctx := testserver.Context(t)
	alice, mallory := role(t, pool), role(t, pool)
	require.Positive(t, grant(t, alice, "a"))
	run(t, mallory, "CREATE TEMPORARY TABLE leased_locks AS SELECT 'a' AS resource, 0::bigint AS token, NULL::text AS "+
		"attempt",
		"CREATE TEMPORARY TABLE leased_origin (origin text)", "CREATE TEMPORARY SEQUENCE leased_tokens",
		"CREATE FUNCTION pg_temp.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS $$ SELECT 'infinity'::timestamptz $$")
	schema := pool.Config().ConnConfig.RuntimeParams["search_path"]
	own := "own_" + engine.NewSessionID().String()
	_, err := pool.Exec(ctx, "CREATE SCHEMA "+own+" AUTHORIZATION "+mallory.Config().User)
	require.NoError(t, err)
	for _, operator := range []string{"=", "<>", ">", "<"} { // of the comparisons of names, attempts and times
		for _, kind := range []string{"text", "timestamptz"} {
			run(t, mallory, "CREATE OR REPLACE FUNCTION "+own+".never("+kind+", "+kind+") RETURNS boolean LANGUAGE sql AS "+
				"'SELECT false'",
				"CREATE OPERATOR "+own+"."+operator+" (LEFTARG = "+kind+", RIGHTARG = "+kind+", FUNCTION = "+own+".never)")
		}
	}
	run(t, mallory, "SET search_path = pg_temp, "+own+", pg_catalog, "+schema)
	require.Zero(t, grant(t, mallory, "a"), "the lock is held")
	token := grant(t, mallory, "b")
	var last int64
	require.NoError(t, pool.QueryRow(ctx, "SELECT last_value FROM leased_tokens").Scan(&last))
	require.Equal(t, last, token)
}

// Two schemas in one database are two lock services.
func TestTwoSchemas(t *testing.T) {
	t.Parallel()
	one, two := database(t, shared.Get(t).DSN), database(t, shared.Get(t).DSN)
	require.Equal(t, int64(1), grant(t, one, "a"))
	require.Equal(t, int64(1), grant(t, two, "a"))
	require.Zero(t, grant(t, one, "a"))
}

// A role that knows the attempt and the channel of a waiter does not take its place, cannot end it, and does not
// learn its token.
func TestWaitersOfRoles(t *testing.T) {
	t.Parallel()
	pool := database(t, shared.Get(t).DSN)
	alice, mallory := role(t, pool), role(t, pool)
	const queue = "SELECT coalesce(place, 0) FROM leased_acquire(ARRAY['a'], 'h', '1 min', '" + attemptOfAlice +
		"', NULL, '1 min', 'c')"
	do(t, pool, acquireA)
	require.Equal(t, int64(1), value[int64](t, alice, queue))
	require.Equal(t, int64(2), value[int64](t, mallory, queue))
	require.Equal(t, int64(1), value[int64](t, alice, queue))
	ticket := "SELECT ticket FROM leased_waiters WHERE owner = '" + alice.Config().User + "'"
	first := value[int64](t, pool, ticket)
	run(t, mallory, "SELECT leased_acquire(ARRAY['a'], 'h', '1 min', '"+attemptOfAlice+"')",
		"SELECT leased_release(ARRAY['a'], '"+attemptOfAlice+"')")
	require.Equal(t, int64(1), value[int64](t, alice, queue))
	require.Equal(t, first, value[int64](t, pool, ticket))
	require.Equal(t, "released", value[string](t, pool, "SELECT CASE WHEN next_token IS NULL AND next_attempt IS NULL "+
		"THEN 'released' END FROM leased_release(ARRAY['a'], 'an attempt for lock a', true, 'c')"))
	require.Equal(t, alice.Config().User, value[string](t, pool, "SELECT owner FROM leased_inspect('a')"))
}
