package sqlgate

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/internal/golden"
)

// TestGoldenTables checks that the tables of the gates are those of version 1: CREATE TABLE
// IF NOT EXISTS does not change a table that exists. Functions and triggers may change, since
// the schema replaces them.
func TestGoldenTables(t *testing.T) {
	table := regexp.MustCompile(`(?ms)^CREATE TABLE .*?\n\).*?;$`)
	for _, dialect := range []Dialect{Postgres, MySQL, SQLite} {
		text, err := DDL(dialect)
		require.NoError(t, err)
		tables := table.FindAllString(text, -1)
		require.NotEmpty(t, tables)
		golden.Text(t, "tables-"+string(dialect)+".sql", strings.Join(tables, "\n\n")+"\n")
	}
}
