package pgsql_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/storagegate/sqlgate/internal/pgsql"
)

func TestHints(t *testing.T) {
	var h pgsql.Hints
	require.False(t, h.Likely("orders", 3))
	h.Note("orders", 3)
	require.True(t, h.Likely("orders", 3))
	require.False(t, h.Likely("orders", 4), "another token")
	require.False(t, h.Likely("invoices", 3), "another resource")
}

func TestExplain(t *testing.T) {
	for state, want := range map[string]pgsql.Meaning{
		"40001": pgsql.Retry, "40P01": pgsql.Retry, "LF006": pgsql.EnterFirst,
		"23505": pgsql.RolledBack, "LF001": pgsql.RolledBack, "57014": pgsql.RolledBack,
		"08006": pgsql.Unknown, "57P01": pgsql.Unknown, "40003": pgsql.Unknown, "": pgsql.Unknown,
	} {
		require.Equal(t, want, pgsql.Explain(state), state)
	}
}
