package postgres

import (
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/lease/engine"
)

// A server that panics may have committed the transaction, whatever its error says.
func TestPanicIsUncertain(t *testing.T) {
	for _, err := range []*pgconn.PgError{
		{Code: "42501", SeverityUnlocalized: "PANIC", Severity: "PANIK"},
		{Code: "42501", Severity: "PANIC"},
		{Code: codeEnded, Severity: "PANIC"},
	} {
		require.ErrorIs(t, failure(t.Context(), "acquire", "a", err), engine.ErrUncertain)
		require.NotErrorIs(t, failure(t.Context(), "acquire", "a", err), engine.ErrForbidden)
	}
	require.ErrorIs(t, failure(t.Context(), "acquire", "a", &pgconn.PgError{Code: "42501", Severity: "ERROR"}),
		engine.ErrForbidden)
}
