package pgsql_test

import (
	"strings"
	"testing"

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
		require.Equal(t, want, pgsql.Explain(state), state)
	}
}
