package pgxgate

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate"
	"github.com/leased-project/leased/storagegate/sqlgate/internal/pgsql"
)

var _ storagegate.Resetter = (*Gate)(nil)

// Reset implements storagegate.Resetter. It needs privileges on the table
// leased_resets, which writers do not need.
func (g *Gate) Reset(ctx context.Context, resource fencing.Resource, expected, to fencing.Token) error {
	if err := storagegate.ValidateReset(resource, expected, to); err != nil {
		return err
	}
	return pgsql.Run(ctx, explain, func() error {
		_, err := g.pool.Exec(ctx, pgsql.Reset, string(resource), int64(expected), int64(to))
		var raised *pgconn.PgError
		if errors.As(err, &raised) && raised.Code == pgsql.MarkChanged {
			if mark, parseErr := fencing.ParseToken(raised.Detail); parseErr == nil {
				return storagegate.CompareMark(resource, mark, expected)
			}
		}
		if err != nil {
			return fmt.Errorf("reset the mark of %q: %w", string(resource), commitError(err))
		}
		return nil
	}, nil)
}
