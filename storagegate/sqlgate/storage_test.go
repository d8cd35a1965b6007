package sqlgate_test

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
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
		standStill() // never returns
	}
	code := m.Run()
	postgres.Stop()
	mariadb.Stop()
	os.Exit(code)
}

// storage is a database that is empty but for the table of the suite's values.
type storage struct {
	dialect     sqlgate.Dialect
	driver, dsn string
}

var made atomic.Int64

// newStorage makes a database of its own for one case.
func newStorage(t testing.TB, dialect sqlgate.Dialect) storage {
	t.Helper()
	name := fmt.Sprintf("case_%d", made.Add(1))
	var s storage
	switch dialect {
	case sqlgate.Postgres:
		server := postgres.Get(t)
		execute(t, storage{dialect, "pgx", server.DSN}, "CREATE DATABASE "+name)
		s = storage{dialect, "pgx", strings.Replace(server.DSN, "/postgres?", "/"+name+"?", 1)}
	case sqlgate.MySQL:
		server := mariadb.Get(t)
		execute(t, storage{dialect, "mysql", server.DSN}, "CREATE DATABASE "+name+" CHARACTER SET utf8mb4")
		s = storage{dialect, "mysql", strings.Replace(server.DSN, "/leased", "/"+name, 1)}
	case sqlgate.SQLite:
		path := filepath.Join(t.TempDir(), name+".db")
		s = storage{dialect, "sqlite", "file:" + path + "?_pragma=busy_timeout(60000)&_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)"}
	}
	key := "text"
	if dialect == sqlgate.MySQL {
		key = "varbinary(512)"
	}
	execute(t, s, "CREATE TABLE contents (resource "+key+" NOT NULL PRIMARY KEY, value text NOT NULL)")
	require.NoError(t, s.gate(t, fencing.Rule{}).Install(t.Context()))
	return s
}

func (s storage) open(t testing.TB) *sql.DB {
	t.Helper()
	db, err := sql.Open(s.driver, s.dsn)
	require.NoError(t, err)
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

// put is the suite's write.
func (s storage) put(ctx context.Context, tx *sql.Tx, resource fencing.Resource, value string) error {
	statement := map[sqlgate.Dialect]string{
		sqlgate.Postgres: `INSERT INTO contents VALUES ($1, $2) ON CONFLICT (resource) DO UPDATE SET value = excluded.value`,
		sqlgate.SQLite:   `INSERT INTO contents VALUES (?, ?) ON CONFLICT (resource) DO UPDATE SET value = excluded.value`,
		sqlgate.MySQL:    `INSERT INTO contents VALUES (?, ?) ON DUPLICATE KEY UPDATE value = VALUES(value)`,
	}[s.dialect]
	_, err := tx.ExecContext(ctx, statement, string(resource), value)
	return err
}

// get reads what put wrote.
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

// dieInTheMiddle runs a write in a process of its own and kills that between
// check and commit.
func (s storage) dieInTheMiddle(t testing.TB, resource fencing.Resource, token fencing.Token, value string) {
	t.Helper()
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), envDSN+"="+s.dsn, envDriver+"="+s.driver, envDialect+"="+string(s.dialect), envValue+"="+value)
	child.Env = append(child.Env, fencing.Environ(resource, token)...)
	child.Stderr = os.Stderr
	output, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	line, err := bufio.NewReader(output).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "standing still\n", line)
	require.NoError(t, child.Process.Kill())
	_ = child.Wait()
}

// standStill is the child of dieInTheMiddle.
func standStill() {
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
		fmt.Println("standing still")
		select {}
	}))
}

// How long and how often a test looks for what must happen.
const (
	gracious = 30 * time.Second
	tick     = 5 * time.Millisecond
)
