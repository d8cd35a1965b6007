package testserver

import (
	"encoding/binary"
	"fmt"
	"net"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

const postgresAdvice = "install PostgreSQL with initdb (Debian: apt-get install postgresql)"

// Postgres starts a PostgreSQL server for one test. The server does not sync to
// disk: commits survive kill -9, but not a power failure.
func Postgres(t testing.TB) *Server {
	t.Helper()
	return forTest(t, StartPostgres)
}

// StartPostgres starts a PostgreSQL server that does not sync to disk.
func StartPostgres() (*Server, error) { return startPostgres("fsync=off", "full_page_writes=off") }

// StartDurablePostgres starts a PostgreSQL server that syncs every commit to disk,
// as in production. Use it for measurements.
func StartDurablePostgres() (*Server, error) {
	return startPostgres("fsync=on", "max_connections=400")
}

func startPostgres(settings ...string) (s *Server, err error) {
	// initdb is installed beside the server, in a folder that is not in PATH on
	// Debian.
	initdb, err := find(postgresAdvice, "/usr/lib/postgresql/*/bin/initdb", "/usr/pgsql-*/bin/initdb",
		"/opt/homebrew/opt/postgresql@*/bin/initdb", "initdb")
	if err != nil {
		return nil, err
	}
	program, err := find(postgresAdvice, filepath.Join(filepath.Dir(initdb), "postgres"))
	if err != nil {
		return nil, err
	}
	u, err := unprivileged("postgres", "nobody")
	if err != nil {
		return nil, fmt.Errorf("start PostgreSQL: %w", err)
	}
	dir, err := folder(u, "postgres")
	if err != nil {
		return nil, fmt.Errorf("create a folder for PostgreSQL: %w", err)
	}
	defer removeUnless(&s, dir)
	data := filepath.Join(dir, "data")
	if err := setUp(u, dir, initdb, "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"); err != nil {
		return nil, err
	}
	addr, port, err := freeAddr()
	if err != nil {
		return nil, err
	}
	args := []string{"-D", data, "-p", port, "-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=",
		"-c", "max_connections=200", "-c", "logging_collector=off"}
	for _, setting := range settings {
		args = append(args, "-c", setting)
	}
	s, err = launch(spec{program: program, args: args, user: u, halt: syscall.SIGQUIT, answers: postgresAnswers}, dir, addr)
	if err != nil {
		return nil, err
	}
	s.DSN = "postgres://postgres@" + addr + "/postgres?sslmode=disable"
	return s, nil
}

// postgresAnswers sends a startup message. A server that is still starting up
// answers with an error.
func postgresAnswers(addr string) error {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	hello := binary.BigEndian.AppendUint32(nil, 0) // the length is set below
	hello = binary.BigEndian.AppendUint32(hello, 3<<16)
	hello = append(hello, "user\x00postgres\x00database\x00postgres\x00\x00"...)
	binary.BigEndian.PutUint32(hello, uint32(len(hello)))
	if _, err := conn.Write(hello); err != nil {
		return err
	}
	var kind [1]byte
	if _, err := conn.Read(kind[:]); err != nil {
		return err
	}
	if kind[0] != 'R' {
		return fmt.Errorf("PostgreSQL answered with message %q", kind[0])
	}
	return nil
}
