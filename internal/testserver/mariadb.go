package testserver

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

const mariadbAdvice = "install MariaDB's server (Debian: apt-get install mariadb-server)"

// mariadbUsers lets tests connect over TCP without a password, with all privileges.
const mariadbUsers = `CREATE USER IF NOT EXISTS 'leased'@'%';
GRANT ALL PRIVILEGES ON *.* TO 'leased'@'%' WITH GRANT OPTION;
CREATE DATABASE IF NOT EXISTS leased CHARACTER SET utf8mb4;
`

// MariaDB starts a MariaDB server for one test. The server does not sync to disk:
// commits survive kill -9, but not a power failure.
func MariaDB(t testing.TB) *Server {
	t.Helper()
	return forTest(t, StartMariaDB)
}

// StartMariaDB starts a MariaDB server that does not sync to disk.
func StartMariaDB() (*Server, error) { return startMariaDB("2") }

// StartDurableMariaDB starts a MariaDB server that syncs every commit to disk, as in
// production. Use it for measurements.
func StartDurableMariaDB() (*Server, error) { return startMariaDB("1") }

func startMariaDB(flush string) (s *Server, err error) {
	install, err := find(mariadbAdvice, "/usr/bin/mariadb-install-db", "mariadb-install-db", "mysql_install_db")
	if err != nil {
		return nil, err
	}
	program, err := find(mariadbAdvice, "/usr/sbin/mariadbd", "mariadbd")
	if err != nil {
		return nil, err
	}
	u, err := unprivileged("mysql", "nobody")
	if err != nil {
		return nil, fmt.Errorf("start MariaDB: %w", err)
	}
	dir, err := folder(u, "mariadb")
	if err != nil {
		return nil, fmt.Errorf("create a folder for MariaDB: %w", err)
	}
	defer removeUnless(&s, dir)
	data, users := filepath.Join(dir, "data"), filepath.Join(dir, "users.sql")
	if err := setUp(u, dir, install, "--no-defaults", "--datadir="+data, "--auth-root-authentication-method=normal", "--skip-test-db"); err != nil {
		return nil, err
	}
	if err := os.WriteFile(users, []byte(mariadbUsers), 0o644); err != nil {
		return nil, err
	}
	addr, port, err := freeAddr()
	if err != nil {
		return nil, err
	}
	args := []string{"--no-defaults", "--datadir=" + data, "--port=" + port, "--bind-address=127.0.0.1",
		"--socket=" + filepath.Join(dir, "socket"), "--pid-file=" + filepath.Join(dir, "pid"), "--init-file=" + users,
		"--innodb-flush-log-at-trx-commit=" + flush, "--innodb-buffer-pool-size=64M", "--max-connections=200", "--skip-name-resolve"}
	s, err = launch(spec{program: program, args: args, user: u, halt: syscall.SIGTERM, answers: mariadbAnswers}, dir, addr)
	if err != nil {
		return nil, err
	}
	s.DSN = "leased@tcp(" + addr + ")/leased"
	return s, nil
}

// mariadbAnswers waits for the greeting that the server sends first.
func mariadbAnswers(addr string) error {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	var greeting [5]byte // length, sequence number, protocol version
	if _, err := io.ReadFull(conn, greeting[:]); err != nil {
		return err
	}
	if greeting[4] != 10 {
		return fmt.Errorf("MariaDB greeted with protocol %d", greeting[4])
	}
	return nil
}
