package postgres_test

import (
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/lease/postgres"
	"github.com/leased-project/leased/storagegate/sqlgate"
)

// The statements and programs of docs/POSTGRES.md run as printed, and so do the Java programs
// of docs/MIGRATING.md. Java code without a main is the code to be replaced.
func TestDocument(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/POSTGRES.md")
	require.NoError(t, err)
	guides, err := os.ReadFile("../../docs/MIGRATING.md")
	require.NoError(t, err)
	blocks := append(regexp.MustCompile("(?s)```(\\w+)\n(.*?)```").FindAllStringSubmatch(string(text), -1),
		regexp.MustCompile("(?s)```(java)\n(import.*?)```").FindAllStringSubmatch(string(guides), -1)...)
	server := testserver.Postgres(t)
	marks, err := sqlgate.DDL(sqlgate.Postgres)
	require.NoError(t, err)
	run(t, connect(t, server.DSN), postgres.DDL(), marks,
		"INSERT INTO leased_locks (resource, queued) VALUES ('idle', false), ('left', true), ('waited', true)",
		"INSERT INTO leased_waiters SELECT r, 1, r, 'w', NULL, NULL, ARRAY[r], '1 s', NULL, now(), now() + place::interval "+
			"FROM (VALUES ('left', '0'), ('waited', '1 hour')) w (r, place)")
	ran := map[string]int{}
	for _, block := range blocks {
		language, code := block[1], block[2]
		var cmd *exec.Cmd
		switch language {
		case "sql":
			cmd = exec.CommandContext(testserver.Context(t), "psql", "-v", "ON_ERROR_STOP=1", server.DSN)
			cmd.Stdin = strings.NewReader(code)
		case "python":
			cmd = exec.CommandContext(testserver.Context(t), "/usr/bin/python3", write(t, "example.py", code),
				strings.Replace(server.DSN, "postgres:", "postgresql:", 1)) // SQLAlchemy knows only this name
		case "javascript":
			cmd = exec.CommandContext(testserver.Context(t), "node", write(t, "example.js", code), server.DSN)
			cmd.Env = append(os.Environ(), "NODE_PATH="+nodePostgres(t))
		case "java":
			// A transaction of the first page leaves its lease to expire.
			run(t, connect(t, server.DSN), "SELECT leased_break(resource, token) FROM leased_list('account/')")
			cmd = exec.CommandContext(testserver.Context(t), "java", "-cp", driverJava(t), write(t, "Example.java", code),
				jdbc(t, server.DSN))
		default:
			continue
		}
		output, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s\n%s", code, output)
		if language != "sql" {
			require.Contains(t, string(output), "written with a token")
		}
		ran[language]++
	}
	require.Equal(t, map[string]int{"sql": 9, "python": 3, "javascript": 1, "java": 2}, ran)
	check := connect(t, server.DSN)
	require.Equal(t, "waited waited", value[string](t, check, "SELECT (SELECT string_agg(resource, '') FROM leased_locks "+
		"WHERE resource IN ('idle', 'left', 'waited')) || ' ' || string_agg(resource, '') FROM leased_waiters"),
		"idle locks are deleted, unless others wait for them")
	var balance, rows int
	require.NoError(t, check.QueryRow(testserver.Context(t), "SELECT sum(balance), count(*) FROM accounts").Scan(&balance,
		&rows))
	require.Equal(t, []int{150, 5}, []int{balance, rows})
	require.ErrorContains(t, check.QueryRow(testserver.Context(t), "SELECT leased_fence('account/7', 1)").Scan(nil),
		"LF001")
}

// nodePostgres installs node-postgres and returns its folder.
func nodePostgres(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	output, err := exec.CommandContext(testserver.Context(t), "npm", "install", "--prefix", dir, "--no-audit", "--no-fund",
		"--ignore-scripts", "pg@8.16.3").CombinedOutput()
	require.NoError(t, err, "install Node.js and npm; %s", output)
	return filepath.Join(dir, "node_modules")
}

// driverJava returns the path of the JDBC driver.
func driverJava(t *testing.T) string {
	t.Helper()
	const driver = "/usr/share/java/postgresql.jar"
	_, err := os.Stat(driver)
	require.NoError(t, err, "install default-jdk-headless and libpostgresql-jdbc-java (scripts/install-test-deps)")
	return driver
}

// jdbc returns a connection string in the form of JDBC.
func jdbc(t *testing.T, dsn string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	require.NoError(t, err)
	return "jdbc:postgresql://" + u.Host + u.Path + "?user=" + u.User.Username()
}

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}
