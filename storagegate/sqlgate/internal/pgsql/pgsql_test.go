package pgsql_test

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate/sqlgate/internal/pgsql"
)

func TestHints(t *testing.T) {
	var h pgsql.Hints
	lockOnly := func(resource fencing.Resource, token fencing.Token) bool {
		query, args := h.First(fencing.Rule{}, resource, token)
		require.Equal(t, []any{string(resource), int64(token)}, args[:2])
		return strings.HasPrefix(query, "SELECT")
	}
	require.False(t, lockOnly("orders", 3))
	h.Note("orders", 3)
	require.True(t, lockOnly("orders", 3))
	require.False(t, lockOnly("orders", 4), "another token")
	require.False(t, lockOnly("invoices", 3), "another resource")
}

func TestExplain(t *testing.T) {
	for state, want := range map[string]pgsql.Meaning{
		"40001": pgsql.Retry, "40P01": pgsql.Retry, "LF006": pgsql.EnterFirst,
		"23505": pgsql.RolledBack, "LF001": pgsql.RolledBack, "57014": pgsql.RolledBack,
		"08006": pgsql.Unknown, "57P01": pgsql.Unknown, "40003": pgsql.Unknown, "": pgsql.Unknown,
	} {
		err := fmt.Errorf("commit: %w", &pgconn.PgError{Code: state, Severity: "ERROR"})
		require.Equal(t, want, pgsql.Explain(err), state)
	}
	require.Equal(t, pgsql.Unknown, pgsql.Explain(io.ErrUnexpectedEOF))
}

// An error that ends the connection, such as that of a pooler or of a server that could not sync its log, may arrive
// after the commit, whatever its code.
func TestFatalErrorIsUncertain(t *testing.T) {
	for _, err := range []*pgconn.PgError{
		{Code: "58000", Severity: "FATAL"},
		{Code: "58030", Severity: "PANIK", SeverityUnlocalized: "PANIC"},
	} {
		require.Equal(t, pgsql.Unknown, pgsql.Explain(err), err)
	}
	idle := &pgconn.PgError{Code: "25P03", Severity: "FATAL"}
	require.Equal(t, pgsql.RolledBack, pgsql.Explain(idle), "the server has ended an idle transaction")
}
