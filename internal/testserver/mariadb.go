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
// production, with further options. Use it for measurements.
func StartDurableMariaDB(options ...string) (*Server, error) { return startMariaDB("1", options...) }

func startMariaDB(flush string, options ...string) (*Server, error) {
	return start("mariadb", []string{"mysql", "nobody"}, func(s *Server) error {
		install, err := find(mariadbAdvice, "/usr/bin/mariadb-install-db", "mariadb-install-db", "mysql_install_db")
		if err != nil {
			return err
		}
		program, err := find(mariadbAdvice, "/usr/sbin/mariadbd", "mariadbd")
		if err != nil {
			return err
		}
		data, users := filepath.Join(s.Dir, "data"), filepath.Join(s.Dir, "users.sql")
		if err := s.setUp(install, "--no-defaults", "--datadir="+data, "--auth-root-authentication-method=normal",
			"--skip-test-db"); err != nil {
			return err
		}
		s.Args = []string{program, "--no-defaults", "--datadir=" + data, "--port=" + portOf(s.Addr),
			"--bind-address=127.0.0.1", "--socket=" + filepath.Join(s.Dir, "socket"),
			"--pid-file=" + filepath.Join(s.Dir, "pid"), "--init-file=" + users,
			"--innodb-flush-log-at-trx-commit=" + flush, "--innodb-buffer-pool-size=64M", "--max-connections=200",
			"--skip-name-resolve"}
		s.Args = append(s.Args, options...)
		s.answers = answers("", 5, "\x0a") // the server greets first: length, sequence number, protocol version 10
		s.DSN = "leased@tcp(" + s.Addr + ")/leased"
		return os.WriteFile(users, []byte(mariadbUsers), 0o644)
	})
}
