package postgres_test

import (
	"bytes"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/lease/postgres"
)

// Tokens are raised while no transaction can take one: neither an open one that has taken one, nor a new one.
func TestRaiseExcludesGrants(t *testing.T) {
	t.Parallel()
	ctx := testserver.Context(t)
	pool := database(t, shared.Get(t).DSN)
	first := grant(t, pool, "a")
	holding := transaction(t, pool, pgx.ReadCommitted, "SELECT leased_hold('b')")
	_, err := pool.Exec(ctx, "SELECT leased_raise(1)")
	require.ErrorContains(t, err, "55P03", "it gives up, because other calls wait for it")
	require.NoError(t, holding.Commit(ctx))

	raising := transaction(t, pool, pgx.ReadCommitted)
	raised := value[int64](t, raising, "SELECT leased_raise(1000)")
	require.Greater(t, raised, first)
	token := meanwhile[int64](t, pool, "SELECT leased_hold('b')")
	require.NoError(t, raising.Commit(ctx))
	require.Greater(t, token(), raised)
}

// A database without the row of its origin, such as one that was loaded from a dump without data, raises its tokens
// once. If the first grant is prepared, others are granted locks meanwhile, and add the row if it is rolled back.
func TestOriginIsMissing(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"ROLLBACK", "COMMIT"} {
		pool := database(t, shared.Get(t).DSN)
		last := grant(t, pool, "a")
		do(t, pool, "TRUNCATE leased_origin", "ALTER SEQUENCE leased_raised RESTART")
		first := transaction(t, pool, pgx.ReadCommitted)
		raised := grant(t, first, "b")
		require.Greater(t, raised, last+step/2)
		prepared := "leased_" + engine.NewSessionID().String()
		run(t, first.Conn(), "PREPARE TRANSACTION '"+prepared+"'")
		other := second(t, pool)
		run(t, other, "SET lock_timeout = '1 s'")
		require.Equal(t, raised+1, grant(t, other, "c"))
		do(t, pool, end+" PREPARED '"+prepared+"'")
		require.Equal(t, raised+2, grant(t, other, "d"))
		require.Equal(t, 1, value[int](t, pool, "SELECT count(*) FROM leased_known_origin"))
		require.NoError(t, first.Rollback(testserver.Context(t)))
	}

	server := shared.Get(t)
	admin := connect(t, server.DSN)
	name := "empty_" + engine.NewSessionID().String()
	run(t, admin, "CREATE DATABASE "+name)
	dsn := strings.Replace(server.DSN, "/postgres?", "/"+name+"?", 1)
	run(t, connect(t, dsn), postgres.DDL())
	run(t, admin, "CREATE DATABASE "+name+"_2")
	dump, err := exec.CommandContext(testserver.Context(t), "pg_dump", "-s", dsn).Output()
	require.NoError(t, err)
	load := exec.CommandContext(testserver.Context(t), "psql", "-q", "-v", "ON_ERROR_STOP=1",
		strings.Replace(server.DSN, "/postgres?", "/"+name+"_2?", 1))
	load.Stdin = strings.NewReader(string(dump))
	output, err := load.CombinedOutput()
	require.NoError(t, err, string(output))
	loaded := connect(t, strings.Replace(server.DSN, "/postgres?", "/"+name+"_2?", 1))
	run(t, loaded, "SET search_path = public", postgres.DDL())
	token := grant(t, loaded, "a")
	require.Greater(t, token, 4*int64(step))
	require.Equal(t, token+1, grant(t, loaded, "b"), "the step is taken once")
}

// moved makes a database believe that it has another origin.
func moved(t *testing.T, pool *pgxpool.Pool, change string) {
	t.Helper()
	do(t, pool, "UPDATE leased_origin SET started = NULL, "+change, raisedForRow)
}

// raisedForRow notes that the tokens were raised for the origin in the row.
const raisedForRow = "SELECT setval('leased_raised', leased_raised_for(server, place)) FROM leased_origin"

// The first grant after a change of the origin is in a transaction that stays open or is prepared. Other transactions
// are granted locks meanwhile, with raised tokens. They are raised once, also if that transaction is rolled back.
func TestFirstGrantAfterAChangeBlocksNobody(t *testing.T) {
	t.Parallel()
	ctx := testserver.Context(t)
	for _, change := range []string{"server = 'another'", "place = '00000000' || substr(place, 9)", "only_row = true"} {
		for _, end := range []string{"ROLLBACK", "COMMIT"} {
			pool := database(t, shared.Get(t).DSN)
			before := grant(t, pool, "a")
			moved(t, pool, change)
			open := transaction(t, pool, pgx.ReadCommitted)
			last := value[int64](t, open, "SELECT leased_hold('b')")
			require.Equal(t, change != "only_row = true", last > before+step/2)
			name := "leased_" + engine.NewSessionID().String()
			run(t, open.Conn(), "PREPARE TRANSACTION '"+name+"'")
			other := second(t, pool)
			run(t, other, "SET lock_timeout = '1 s'")
			for _, lock := range []string{"c", "d"} {
				token := grant(t, other, lock)
				require.Greater(t, token, last)
				require.Less(t, token, last+step/2, "raised once")
				last = token
			}
			do(t, pool, end+" PREPARED '"+name+"'")
			require.Less(t, grant(t, pool, "e"), last+step/2, "raised once")
			require.NoError(t, open.Rollback(ctx))
		}
	}
}

// Grants that waited while another transaction raised the tokens do not raise them again, even if it was rolled back or
// a prepared transaction still locks the row of the origin.
func TestWaitersRaiseOnce(t *testing.T) {
	t.Parallel()
	ctx := testserver.Context(t)
	for _, raising := range []string{"SELECT FROM leased_raising FOR UPDATE", "INSERT INTO leased_raising TABLE saved"} {
		pool := database(t, shared.Get(t).DSN)
		before := grant(t, pool, "a")
		do(t, pool, "INSERT INTO leased_raising SELECT leased_raised_for(server, place) FROM leased_origin",
			"CREATE TABLE saved AS TABLE leased_raising",
			"DELETE FROM leased_raising WHERE "+strconv.FormatBool(strings.HasPrefix(raising, "INSERT")))
		moved(t, pool, "server = 'another'")
		prepared := transaction(t, pool, pgx.ReadCommitted, "UPDATE leased_origin SET started = NULL")
		name := "leased_" + engine.NewSessionID().String()
		run(t, prepared.Conn(), "PREPARE TRANSACTION '"+name+"'")
		other := transaction(t, pool, pgx.ReadCommitted, raising)
		one := meanwhile[int64](t, pool, "SELECT leased_hold('b')")
		require.NoError(t, prepared.Rollback(ctx))
		another := meanwhile[int64](t, pool, "SELECT leased_hold('c')")
		require.NoError(t, other.Rollback(ctx))
		first, second := one(), another()
		require.Greater(t, first, before+step/2)
		require.EqualValues(t, 1, max(first-second, second-first), raising)
		do(t, pool, "ROLLBACK PREPARED '"+name+"'")
	}
}

// A transaction that was prepared before a failover still locks the row of the old origin. It does not keep others from
// raising the tokens.
func TestPreparedGrantBeforeAChangeBlocksNobody(t *testing.T) {
	t.Parallel()
	pool := database(t, shared.Get(t).DSN)
	before := grant(t, pool, "a")
	moved(t, pool, "server = 'another'")
	open := transaction(t, pool, pgx.ReadCommitted, "UPDATE leased_origin SET started = NULL")
	name := "leased_" + engine.NewSessionID().String()
	run(t, open.Conn(), "PREPARE TRANSACTION '"+name+"'")
	other := second(t, pool)
	run(t, other, "SET lock_timeout = '1 s'")
	last := grant(t, other, "c")
	require.Greater(t, last, before+step/2)
	require.Less(t, grant(t, other, "d"), last+step/2, "raised once")
	do(t, pool, "COMMIT PREPARED '"+name+"'")
	require.Less(t, grant(t, pool, "e"), last+step/2, "raised once")
	require.NoError(t, open.Rollback(testserver.Context(t)))
}

// A prepared transaction keeps the row of the origin out of date during several failovers. Each of them raises the
// tokens by one step: with more, they would reach those of another recovery to a later timeline.
func TestTimelinesBesideAPreparedGrant(t *testing.T) {
	t.Parallel()
	pool := database(t, shared.Get(t).DSN)
	last := grant(t, pool, "a")
	require.EqualValues(t, 1, last, "an installation raises nothing")
	open := transaction(t, pool, pgx.ReadCommitted, "UPDATE leased_origin SET started = NULL")
	name := "leased_" + engine.NewSessionID().String()
	run(t, open.Conn(), "PREPARE TRANSACTION '"+name+"'")
	place := value[string](t, pool, "SELECT substr(leased_place(), 9)")
	for timeline := 2; timeline <= 4; timeline++ {
		do(t, pool, fmt.Sprintf("CREATE OR REPLACE FUNCTION leased_place() RETURNS text LANGUAGE sql AS "+
			"$$ SELECT '%08X%s' $$", timeline, place))
		token := grant(t, pool, fmt.Sprint("a/", timeline))
		require.Greater(t, token, last+step/2)
		require.Less(t, token, last+step+step/2)
		last = token
	}
	do(t, pool, "COMMIT PREPARED '"+name+"'")
	require.Equal(t, last+1, grant(t, pool, "b"), "raised once")
	require.NoError(t, open.Rollback(testserver.Context(t)))
}

// Databases that were loaded from one dump, or copied from one, in turn grant no token twice. Neither does one whose
// original was promoted after the dump.
func TestTokensOfSeveralCopies(t *testing.T) {
	t.Parallel()
	ctx := testserver.Context(t)
	server := shared.Get(t)
	admin, clock := connect(t, server.DSN), database(t, server.DSN)
	id := engine.NewSessionID().String()
	dsn := func(name string) string { return strings.Replace(server.DSN, "/postgres?", "/"+name+"_"+id+"?", 1) }
	run(t, admin, "CREATE DATABASE original_"+id)
	original := connect(t, dsn("original"))
	run(t, original, postgres.DDL())
	used(t, original)
	dump, err := exec.CommandContext(ctx, "pg_dump", dsn("original")).Output()
	require.NoError(t, err)
	var last int64
	for n := range int64(3) {
		run(t, original, "UPDATE leased_origin SET started = NULL, place = '00000000' || substr(place, 9)",
			raisedForRow)
		last = grant(t, original, engine.NewSessionID().String())
		require.Greater(t, last, n*step+step/2, "the original was promoted")
	}
	require.NoError(t, original.Close(ctx))
	for n := range 4 {
		name := fmt.Sprint("copy_", n)
		if n < 2 {
			run(t, admin, "CREATE DATABASE "+name+"_"+id)
			load := exec.CommandContext(ctx, "psql", "-q", "-v", "ON_ERROR_STOP=1", dsn(name))
			load.Stdin = bytes.NewReader(dump)
			output, err := load.CombinedOutput()
			require.NoError(t, err, string(output))
		} else {
			testserver.Eventually(t, "the copy", func() bool {
				_, err := admin.Exec(ctx, "CREATE DATABASE "+name+"_"+id+" TEMPLATE original_"+id)
				return err == nil // no other connection uses the original
			})
		}
		loaded := connect(t, dsn(name))
		run(t, loaded, "SET search_path = public")
		first := grant(t, loaded, "used")
		require.Greater(t, first, last)
		last = first
		for range 10 { // far fewer than 4,096 per second
			last = grant(t, loaded, engine.NewSessionID().String())
		}
		pass(t, clock, "100 ms")
	}
}

// Copies of an original that are used in turn grant no token twice, although an operator raised the tokens of the
// original, which then was granted few of them, and although its server was started again between the copies.
func TestTokensOfCopiesOfARaisedOriginal(t *testing.T) {
	t.Parallel()
	ctx := testserver.Context(t)
	server := shared.Get(t)
	admin := connect(t, server.DSN)
	id := engine.NewSessionID().String()
	dsn := func(name string) string { return strings.Replace(server.DSN, "/postgres?", "/"+name+"_"+id+"?", 1) }
	run(t, admin, "CREATE DATABASE original_"+id)
	original := connect(t, dsn("original"))
	run(t, original, postgres.DDL(), fmt.Sprintf("SELECT leased_raise(%d)", 2*step),
		"UPDATE leased_origin SET since = since - interval '1 day'")
	last := int64(0)
	for _, name := range []string{"copy_1", "copy_2", "copy_3"} {
		if name == "copy_3" {
			original = connect(t, dsn("original"))
			run(t, original, "UPDATE leased_origin SET started = NULL") // as after a start of the server
			grant(t, original, "b")
		}
		require.NoError(t, original.Close(ctx))
		testserver.Eventually(t, "the copy", func() bool {
			_, err := admin.Exec(ctx, "CREATE DATABASE "+name+"_"+id+" TEMPLATE original_"+id)
			return err == nil // no other connection uses the original
		})
		first := grant(t, connect(t, dsn(name)), "a")
		require.Greater(t, first, last, name)
		last = first
	}
}

// The second recovery from one backup has a later timeline than the first one. Its tokens are above those of the
// first one.
func TestTokensGrowAfterEachRecovery(t *testing.T) {
	t.Parallel()
	primary := testserver.Postgres(t)
	before := connect(t, primary.DSN)
	run(t, before, postgres.DDL())
	last := grant(t, before, "a")
	second, err := testserver.StartStandby(primary)
	require.NoError(t, err)
	t.Cleanup(second.Stop)
	after := connect(t, second.DSN)
	folder := value[string](t, after, "SHOW data_directory")
	run(t, after, "COPY (SELECT '# the first recovery used timeline 2') TO '"+folder+"/pg_wal/00000002.history'",
		"SELECT pg_promote()")
	require.Equal(t, "00000003", value[string](t, after, "SELECT left(pg_walfile_name(pg_current_wal_lsn()), 8)"))
	token := grant(t, after, "b")
	require.Greater(t, token, last+2*step)
	require.Less(t, token, last+3*step)
}

// A copy of a database on the same server raises its tokens, also under the name of the original. A sequence that was
// not copied continues above the tokens of the locks.
func TestTokensGrowInACopy(t *testing.T) {
	t.Parallel()
	server := shared.Get(t)
	ctx := testserver.Context(t)
	admin := connect(t, server.DSN)
	id := engine.NewSessionID().String()
	dsn := func(name string) string { return strings.Replace(server.DSN, "/postgres?", "/"+name+"_"+id+"?", 1) }
	run(t, admin, "CREATE DATABASE original_"+id)
	original := connect(t, dsn("original"))
	run(t, original, postgres.DDL())
	used(t, original)
	last := grant(t, original, "a")
	require.NoError(t, original.Close(ctx))
	for _, name := range []string{"copy_1_", "copy_2_"} {
		testserver.Eventually(t, "the copy", func() bool {
			_, err := admin.Exec(ctx, "CREATE DATABASE "+name+id+" TEMPLATE original_"+id)
			return err == nil // no other connection uses the original
		})
	}
	require.Greater(t, grant(t, connect(t, dsn("copy_1")), "used"), last+step/2)
	require.Equal(t, last+1, grant(t, connect(t, dsn("original")), "used"), "the original is the same")

	run(t, admin, "CREATE DATABASE empty_"+id)
	run(t, admin, "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = 'original_"+id+"'",
		"ALTER DATABASE original_"+id+" RENAME TO former_"+id, "ALTER DATABASE copy_2_"+id+" RENAME TO original_"+id)
	renamed := connect(t, dsn("original"))
	require.Greater(t, grant(t, renamed, "used"), last+step/2)

	run(t, renamed, "SELECT setval('leased_tokens', 1)",
		"UPDATE leased_origin SET server = 'another', started = NULL, "+
			"since = now() + interval '100 days'", raisedForRow,
		"UPDATE leased_locks SET expires = NULL")
	require.Greater(t, grant(t, renamed, "used"), last+8*step, "the clock was set back")
}

// An installation changes only the functions of its own schema, whatever its name.
func TestSchemasWithQuotes(t *testing.T) {
	t.Parallel()
	conn := connect(t, shared.Get(t).DSN)
	name := "app_" + engine.NewSessionID().String()
	for _, schema := range []string{name, strings.ToUpper(name), "a " + name} {
		quoted := pgx.Identifier{schema}.Sanitize()
		run(t, conn, "CREATE SCHEMA "+quoted, "SET search_path = "+quoted, postgres.DDL())
	}
	for _, schema := range []string{name, strings.ToUpper(name), "a " + name} {
		var path string
		var definer, public bool
		require.NoError(t, conn.QueryRow(testserver.Context(t), "SELECT proconfig[1], prosecdef, has_function_privilege("+
			"'public', oid, 'EXECUTE') FROM pg_proc WHERE proname = 'leased_break' AND pronamespace = "+
			"(SELECT oid FROM pg_namespace WHERE nspname = $1)", schema).Scan(&path, &definer, &public))
		quoted := value[string](t, conn, "SELECT quote_ident('"+schema+"')")
		require.Equal(t, "search_path="+quoted+", pg_temp", path)
		require.True(t, definer)
		require.False(t, public)
	}
}

// The functions are not installed where every user may add functions that they would call.
func TestOpenSchemaIsRefused(t *testing.T) {
	t.Parallel()
	conn := connect(t, shared.Get(t).DSN)
	schema := "open_" + engine.NewSessionID().String()
	run(t, conn, "CREATE SCHEMA "+schema, "GRANT CREATE ON SCHEMA "+schema+" TO PUBLIC", "SET search_path = "+schema)
	_, err := conn.Exec(testserver.Context(t), postgres.DDL())
	require.ErrorContains(t, err, "run REVOKE CREATE ON SCHEMA "+schema+" FROM PUBLIC")
	run(t, conn, "ROLLBACK", "REVOKE CREATE ON SCHEMA "+schema+" FROM PUBLIC", postgres.DDL())
}

// An installation that is repeated, as at each start of a program, does not wait for a transaction that has used locks.
// Calls would wait behind it.
func TestInstallDoesNotWaitForTransactions(t *testing.T) {
	t.Parallel()
	pool := database(t, shared.Get(t).DSN)
	transaction(t, pool, pgx.ReadCommitted, "SELECT leased_hold('held')",
		"SELECT leased_acquire(ARRAY['a'], 'h', '1 min', 'an attempt for lock a')", queueA,
		"SELECT leased_release(ARRAY['c'], 'an attempt for lock c')")
	do(t, pool, "SET lock_timeout = '1 min';"+postgres.DDL()) // installations of other tests take turns with it
}

// Programs that start at the same time can install at the same time.
func TestInstallRunsConcurrently(t *testing.T) {
	t.Parallel()
	ctx := testserver.Context(t)
	pool := database(t, shared.Get(t).DSN)
	for _, prepare := range []string{"", "DROP SCHEMA " + pool.Config().ConnConfig.RuntimeParams["search_path"] +
		" CASCADE; CREATE SCHEMA " + pool.Config().ConnConfig.RuntimeParams["search_path"]} {
		do(t, pool, prepare)
		errs := engine.Each(6, 6, func(int) error {
			_, err := pool.Exec(ctx, postgres.DDL())
			return err
		})
		require.NoError(t, errors.Join(errs...))
	}
	require.Positive(t, grant(t, pool, "a"))
}
