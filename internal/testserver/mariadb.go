package testserver

import (
	"os"
	"path/filepath"
)

const mariadbAdvice = "install MariaDB's server (Debian: apt-get install mariadb-server)"

// mariadbUsers lets tests connect over TCP without a password, with all privileges.
const mariadbUsers = `CREATE USER IF NOT EXISTS 'leased'@'%';
GRANT ALL PRIVILEGES ON *.* TO 'leased'@'%' WITH GRANT OPTION;
CREATE DATABASE IF NOT EXISTS leased CHARACTER SET utf8mb4;
`

// StartMariaDB starts a MariaDB server that does not sync to disk: commits survive kill -9,
// but not a power failure.
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
	sp, err := newSpec("mariadb", "mysql", "nobody")
	if err != nil {
		return nil, err
	}
	defer removeUnless(&s, sp.dir)
	data, users := filepath.Join(sp.dir, "data"), filepath.Join(sp.dir, "users.sql")
	if err := sp.setUp(install, "--no-defaults", "--datadir="+data, "--auth-root-authentication-method=normal",
		"--skip-test-db"); err != nil {
		return nil, err
	}
	if err := os.WriteFile(users, []byte(mariadbUsers), 0o644); err != nil {
		return nil, err
	}
	sp.program = program
	sp.args = []string{"--no-defaults", "--datadir=" + data, "--port=" + sp.port, "--bind-address=127.0.0.1",
		"--socket=" + filepath.Join(sp.dir, "socket"), "--pid-file=" + filepath.Join(sp.dir, "pid"), "--init-file=" + users,
		"--innodb-flush-log-at-trx-commit=" + flush, "--innodb-buffer-pool-size=64M", "--max-connections=200",
		"--skip-name-resolve"}
	sp.answers = answers("", 5, "\x0a") // the server greets first: length, sequence number, protocol version 10
	sp.dsn = "leased@tcp(" + sp.addr + ")/leased"
	return launch(sp)
}
