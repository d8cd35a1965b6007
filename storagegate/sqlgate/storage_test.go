package sqlgate_test

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/storagegate/sqlgate"
)

var (
	postgres = testserver.Shared{Start: testserver.StartPostgres}
	mariadb  = testserver.Shared{Start: testserver.StartMariaDB}
)

func TestMain(m *testing.M) {
	if os.Getenv(envDSN) != "" {
		pausedChild() // does not return
	}
	_ = flag.Set("rapid.checks", "30") // the suite runs several times; the command line can override it
	code := m.Run()
	postgres.Stop()
	mariadb.Stop()
	os.Exit(code)
}

// storage is a database, or a schema of PostgreSQL, for one test.
type storage struct {
	dialect     sqlgate.Dialect
	driver, dsn string
}

var made atomic.Int64

// newStorage creates an empty storage with the marks and the table of the suite.
func newStorage(t testing.TB, dialect sqlgate.Dialect) storage {
	t.Helper()
	name := fmt.Sprintf("case_%d", made.Add(1))
	var s storage
	switch dialect {
	case sqlgate.Postgres:
		server := postgres.Get(t)
		execute(t, storage{dialect, "pgx", server.DSN}, "CREATE SCHEMA "+name) // much faster than a database
		s = storage{dialect, "pgx", server.DSN + "&search_path=" + name}
	case sqlgate.MySQL:
		server := mariadb.Get(t)
		execute(t, storage{dialect, "mysql", server.DSN}, "CREATE DATABASE "+name+" CHARACTER SET utf8mb4")
		s = storage{dialect, "mysql", strings.Replace(server.DSN, "/leased", "/"+name, 1)}
	case sqlgate.SQLite:
		path := filepath.Join(t.TempDir(), name+".db")
		s = storage{dialect, "sqlite", "file:" + path +
			"?_pragma=busy_timeout(60000)&_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)"}
	}
	key := "text"
	if dialect == sqlgate.MySQL {
		key = "varbinary(512)"
	}
	db := s.open(t)
	_, err := db.ExecContext(t.Context(),
		"CREATE TABLE contents (resource "+key+" NOT NULL PRIMARY KEY, value text NOT NULL)")
	require.NoError(t, err)
	gate, err := sqlgate.New(db, dialect, fencing.Rule{})
	require.NoError(t, err)
	require.NoError(t, gate.Install(t.Context()))
	return s
}

// suiteStorage is the storage of a suite whose cases run one after the other. It is
// emptied before each case, and its connections stay open: new tables, functions and
// connections would cost more processor time than the cases themselves.
type suiteStorage struct {
	storage
	t      testing.TB // of the suite
	opened []*sql.DB
	used   int // of opened, in this case
}

func newSuiteStorage(t testing.TB, dialect sqlgate.Dialect) *suiteStorage {
	t.Helper()
	return &suiteStorage{storage: newStorage(t, dialect), t: t}
}

// empty deletes values and marks, in spite of the triggers that keep marks.
func (s *suiteStorage) empty(t testing.TB) {
	t.Helper()
	s.used = 0
	switch s.dialect {
	case sqlgate.Postgres:
		execute(t, s.storage, `SET session_replication_role = replica; TRUNCATE contents, leased_marks, leased_resets`)
	case sqlgate.MySQL:
		execute(t, s.storage, `TRUNCATE contents`, `TRUNCATE leased_marks`, `TRUNCATE leased_resets`)
	case sqlgate.SQLite: // a new file costs little
		s.storage, s.opened = newStorage(t, s.dialect), nil
	}
}

// handle returns connections that no other handle of the case uses.
func (s *suiteStorage) handle(t testing.TB) *sql.DB {
	t.Helper()
	if s.dialect == sqlgate.SQLite {
		return s.open(t)
	}
	if s.used == len(s.opened) {
		s.opened = append(s.opened, s.open(s.t))
	}
	s.used++
	return s.opened[s.used-1]
}

func (s storage) open(t testing.TB) *sql.DB {
	t.Helper()
	db, err := sql.Open(s.driver, s.dsn)
	require.NoError(t, err)
	db.SetMaxIdleConns(20) // the default of 2 makes concurrent writers connect again and again
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func (s storage) gate(t testing.TB, rule fencing.Rule) *sqlgate.Gate {
	t.Helper()
	gate, err := sqlgate.New(s.open(t), s.dialect, rule)
	require.NoError(t, err)
	return gate
}

func execute(t testing.TB, s storage, statements ...string) {
	t.Helper()
	db, err := sql.Open(s.driver, s.dsn)
	require.NoError(t, err)
	defer db.Close()
	for _, statement := range statements {
		_, err := db.ExecContext(context.Background(), statement)
		require.NoError(t, err, statement)
	}
}

// put writes the value of a resource.
func (s storage) put(ctx context.Context, tx *sql.Tx, resource fencing.Resource, value string) error {
	statement := map[sqlgate.Dialect]string{
		sqlgate.Postgres: `INSERT INTO contents VALUES ($1, $2) ON CONFLICT (resource) DO UPDATE SET value = excluded.value`,
		sqlgate.SQLite:   `INSERT INTO contents VALUES (?, ?) ON CONFLICT (resource) DO UPDATE SET value = excluded.value`,
		sqlgate.MySQL:    `INSERT INTO contents VALUES (?, ?) ON DUPLICATE KEY UPDATE value = VALUES(value)`,
	}[s.dialect]
	_, err := tx.ExecContext(ctx, statement, string(resource), value)
	return err
}

// get reads the value of a resource.
func (s storage) get(db *sql.DB) func(ctx context.Context, resource fencing.Resource) (string, error) {
	return func(ctx context.Context, resource fencing.Resource) (string, error) {
		query := `SELECT value FROM contents WHERE resource = ?`
		if s.dialect == sqlgate.Postgres {
			query = `SELECT value FROM contents WHERE resource = $1`
		}
		var value string
		err := db.QueryRowContext(ctx, query, string(resource)).Scan(&value)
		if errors.Is(err, sql.ErrNoRows) {
			err = nil
		}
		return value, err
	}
}

const (
	envDSN     = "SQLGATE_TEST_DSN"
	envDriver  = "SQLGATE_TEST_DRIVER"
	envDialect = "SQLGATE_TEST_DIALECT"
	envValue   = "SQLGATE_TEST_VALUE"
)

// crash runs a write in a child process and kills it between check and commit.
func (s storage) crash(t testing.TB, resource fencing.Resource, token fencing.Token, value string) {
	t.Helper()
	testserver.KillPaused(t, append(fencing.Environ(resource, token),
		envDSN+"="+s.dsn, envDriver+"="+s.driver, envDialect+"="+string(s.dialect), envValue+"="+value)...)
}

// pausedChild is the child of crash.
func pausedChild() {
	s := storage{sqlgate.Dialect(os.Getenv(envDialect)), os.Getenv(envDriver), os.Getenv(envDSN)}
	resource, token, err := fencing.FromEnviron()
	if err != nil {
		panic(err)
	}
	db, err := sql.Open(s.driver, s.dsn)
	if err != nil {
		panic(err)
	}
	gate, err := sqlgate.New(db, s.dialect, fencing.Rule{})
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	panic(gate.Do(ctx, resource, token, func(tx *sql.Tx) error {
		if err := s.put(ctx, tx, resource, os.Getenv(envValue)); err != nil {
			return err
		}
		testserver.PauseForKill()
		return nil
	}))
}

// timeout and tick are for require.Eventually.
const (
	timeout = 2 * time.Minute
	tick    = 5 * time.Millisecond
)
