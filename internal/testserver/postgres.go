package testserver

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

const postgresAdvice = "install PostgreSQL with initdb (Debian: apt-get install postgresql)"

// Postgres starts a PostgreSQL server for one test. The server does not sync to
// disk: commits survive kill -9, but not a power failure.
func Postgres(t testing.TB) *Server {
	t.Helper()
	SkipIfShort(t)
	s, err := StartPostgres()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	return s
}

// StartPostgres starts a PostgreSQL server that does not sync to disk.
func StartPostgres() (*Server, error) { return startPostgres("fsync=off", "full_page_writes=off") }

// StartDurablePostgres starts a PostgreSQL server that syncs every commit to disk,
// as in production. Use it for measurements.
func StartDurablePostgres() (*Server, error) {
	return startPostgres("fsync=on", "max_connections=400")
}

func startPostgres(settings ...string) (*Server, error) {
	return runPostgres(settings, func(s *Server, programs, data string) error {
		return s.setUp(filepath.Join(programs, "initdb"), "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8",
			"--locale=C", "--no-sync")
	})
}

// StartStandby copies a running PostgreSQL server and starts the copy as its asynchronous
// standby.
func StartStandby(primary *Server) (*Server, error) {
	return runPostgres(nil, func(s *Server, programs, data string) error {
		return s.setUp(filepath.Join(programs, "pg_basebackup"), "-D", data, "-h", "127.0.0.1", "-p", portOf(primary.Addr),
			"-U", "postgres", "--write-recovery-conf", "--checkpoint=fast", "--no-sync")
	})
}

// runPostgres starts a server on the data folder that prepare makes.
func runPostgres(settings []string, prepare func(s *Server, programs, data string) error) (*Server, error) {
	return start("postgres", []string{"postgres", "nobody"}, func(s *Server) error {
		// initdb is installed beside the server, in a folder that is not in PATH on
		// Debian.
		initdb, err := find(postgresAdvice, "/usr/lib/postgresql/*/bin/initdb", "/usr/pgsql-*/bin/initdb",
			"/opt/homebrew/opt/postgresql@*/bin/initdb", "initdb")
		if err != nil {
			return err
		}
		program, err := find(postgresAdvice, filepath.Join(filepath.Dir(initdb), "postgres"))
		if err != nil {
			return err
		}
		s.halt = syscall.SIGQUIT
		data := filepath.Join(s.Dir, "data")
		s.Args = []string{program, "-D", data, "-p", portOf(s.Addr), "-c", "listen_addresses=127.0.0.1",
			"-c", "unix_socket_directories=", "-c", "max_connections=200", "-c", "max_prepared_transactions=10",
			"-c", "logging_collector=off"}
		for _, setting := range settings {
			s.Args = append(s.Args, "-c", setting)
		}
		s.setPostgres()
		return prepare(s, filepath.Dir(initdb), data)
	})
}

// setPostgres sets what all servers have that speak the protocol of PostgreSQL. The check sends a startup message:
// its length, the version of the protocol, and parameters. A server that is still starting up answers with an error.
func (s *Server) setPostgres() {
	s.answers = answers("\x00\x00\x00\x29\x00\x03\x00\x00user\x00postgres\x00database\x00postgres\x00\x00", 1, "R")
	s.DSN = "postgres://postgres@" + s.Addr + "/postgres?sslmode=disable"
}

// StartPgBouncer starts a connection pooler in front of a PostgreSQL server. The mode is
// session, transaction or statement. Settings are lines of its configuration.
func StartPgBouncer(server *Server, mode string, settings ...string) (*Server, error) {
	return start("pgbouncer", []string{"postgres", "nobody"}, func(s *Server) error {
		program, err := find("install PgBouncer (Debian: apt-get install pgbouncer)", "/usr/sbin/pgbouncer", "pgbouncer")
		if err != nil {
			return err
		}
		config := filepath.Join(s.Dir, "pgbouncer.ini")
		text := fmt.Sprintf("[databases]\n* = host=127.0.0.1 port=%s user=postgres\n[pgbouncer]\nlisten_addr = "+
			"127.0.0.1\nlisten_port = %s\n"+
			"unix_socket_dir =\nauth_type = any\npool_mode = %s\nmax_client_conn = 500\ndefault_pool_size = "+
			"20\nignore_startup_parameters = extra_float_digits\n%s\n",
			portOf(server.Addr), portOf(s.Addr), mode, strings.Join(settings, "\n"))
		s.Args = []string{program, config}
		s.setPostgres()
		return os.WriteFile(config, []byte(text), 0o644)
	})
}
