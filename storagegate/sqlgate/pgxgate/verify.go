package pgxgate

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/leased-project/leased/storagegate/sqlgate"
)

// Verify is sqlgate.Verify with the settings of the pool's connections.
func Verify(ctx context.Context, pool *pgxpool.Pool) error {
	db := stdlib.OpenDBFromPool(pool)
	defer db.Close() // the pool stays open
	return sqlgate.Verify(ctx, db, sqlgate.Postgres)
}
