package sqlgate_test

import (
	"database/sql"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/storagegate/sqlgate"
)

// TestRecipes runs the SQL of docs/GATES.md in order. The first line of a block
// names the dialect, and says whether the table gets a guard first or the block
// must be refused.
func TestRecipes(t *testing.T) {
	text, err := os.ReadFile("../../docs/GATES.md")
	require.NoError(t, err)
	dialectOf := map[string]sqlgate.Dialect{"PostgreSQL": sqlgate.Postgres, "MariaDB": sqlgate.MySQL,
		"SQLite": sqlgate.SQLite}
	stores := map[sqlgate.Dialect]storage{}
	ran := map[sqlgate.Dialect]int{}
	for _, part := range strings.Split(string(text), "```sql\n")[1:] {
		block, _, _ := strings.Cut(part, "```")
		title, statements, _ := strings.Cut(block, "\n")
		name, note, _ := strings.Cut(strings.TrimPrefix(title, "-- "), ", ")
		dialect, ok := dialectOf[name]
		require.True(t, ok, "a block starts with %q", title)
		s, ok := stores[dialect]
		if !ok {
			s = newStorage(t, dialect)
			stores[dialect] = s
		}
		if note == "guarded" {
			guard, err := sqlgate.Guard(dialect, sqlgate.GuardedTable{Table: "accounts", Column: "id", Prefix: "account/"})
			require.NoError(t, err)
			require.NoError(t, runBlock(t, s, guard), title)
		}
		err := runBlock(t, s, statements)
		if note == "refused" {
			require.Error(t, err, block)
		} else {
			require.NoError(t, err, block)
		}
		ran[dialect]++
	}
	require.Equal(t, map[sqlgate.Dialect]int{sqlgate.Postgres: 3, sqlgate.MySQL: 3, sqlgate.SQLite: 3}, ran)
}

// runBlock executes statements on one connection, like a client program.
func runBlock(t *testing.T, s storage, text string) error {
	t.Helper()
	db, err := sql.Open(s.driver, s.dsn)
	require.NoError(t, err)
	defer db.Close()
	db.SetMaxOpenConns(1)
	statements := []string{text}
	if s.dialect == sqlgate.MySQL {
		statements = sqlgate.SplitMySQL(text)
	}
	for _, statement := range statements {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			return err
		}
	}
	return nil
}
