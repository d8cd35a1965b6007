package pgxgate

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leased-project/leased/storagegate"
	"github.com/leased-project/leased/storagegate/sqlgate/internal/pgsql"
)

// Verify checks that a commit survives a crash of the server and a power failure,
// with the settings of the pool's connections. It returns a
// *storagegate.VerifyError that says what to set. It does not check replication: a
// failover to a standby without synchronous replication loses the last marks.
func Verify(ctx context.Context, pool *pgxpool.Pool) error {
	rows, err := pool.Query(ctx, pgsql.Settings)
	if err != nil {
		return fmt.Errorf("read the settings of PostgreSQL: %w", err)
	}
	settings := map[string]string{}
	var name, value string
	if _, err := pgx.ForEachRow(rows, []any{&name, &value}, func() error { settings[name] = value; return nil }); err != nil {
		return fmt.Errorf("read the settings of PostgreSQL: %w", err)
	}
	return storagegate.Verified(pgsql.Weaknesses(settings))
}
