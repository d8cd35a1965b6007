package sqlgate_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate/sqlgate"
)

// fenceWithoutBound fences with an absurd token and does not give a bound.
var fenceWithoutBound = map[sqlgate.Dialect][]string{
	sqlgate.Postgres: {`SELECT leased_fence('orders', 9007199254740990)`,
		`SELECT leased_fence('orders', 9007199254740990, NULL)`,
		`SELECT leased_try('orders', 9007199254740990) = 9007199254740990
			OR leased_fence('orders', 9007199254740990, 0) = 0`},
	sqlgate.MySQL: {`CALL leased_fence('orders', 9007199254740990)`,
		`CALL leased_fence_bounded('orders', 9007199254740990, NULL)`},
	sqlgate.SQLite: {`INSERT INTO leased_fence (resource, token) VALUES ('orders', 9007199254740990)`,
		`INSERT INTO leased_fence (resource, token, max_jump) VALUES ('orders', 9007199254740990, NULL)`},
}

// One absurd token must not close a resource, however the fence is called, unless
// an operator has removed the bound.
func TestFenceIsBoundedByDefault(t *testing.T) {
	for _, dialect := range dialects {
		t.Run(string(dialect), func(t *testing.T) {
			s, db := guarded(t, dialect)
			for _, statement := range fenceWithoutBound[dialect] {
				require.ErrorContains(t, try(t, db, statement), "above the mark", statement)
			}
			if dialect == sqlgate.Postgres { // a claim that a program has set by hand
				err := runBlock(t, s, `BEGIN; SET LOCAL leased.claims = '9007199254740990 account/7';
					UPDATE accounts SET balance = 0 WHERE id = 7; COMMIT`)
				require.ErrorContains(t, err, "above the mark")
			}
			mark, err := s.gate(t, fencing.Rule{}).Mark(t.Context(), "orders")
			require.NoError(t, err)
			require.Equal(t, fencing.None, mark)

			text, err := sqlgate.SetMaxJump(dialect, fencing.Unbounded)
			require.NoError(t, err)
			require.NoError(t, runBlock(t, s, text))
			require.NoError(t, s.gate(t, fencing.Rule{}).Install(t.Context()),
				"installing again keeps the bound of the operator")
			for _, statement := range fenceWithoutBound[dialect] {
				require.NoError(t, try(t, db, statement), statement)
			}
		})
	}
	_, err := sqlgate.SetMaxJump("oracle", 1)
	require.ErrorIs(t, err, sqlgate.ErrUnknownDialect)
	_, err = sqlgate.SetMaxJump(sqlgate.SQLite, 0)
	require.ErrorIs(t, err, fencing.ErrInvalidToken)
}

func TestDefaultBoundIsTheSameInGoAndSQL(t *testing.T) {
	for _, dialect := range dialects {
		text, err := sqlgate.DDL(dialect)
		require.NoError(t, err)
		require.Equal(t, 1, strings.Count(text, fencing.DefaultMaxJump.String()), dialect)
	}
}
