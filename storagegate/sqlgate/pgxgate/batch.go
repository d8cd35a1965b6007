package pgxgate

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate"
	"github.com/leased-project/leased/storagegate/sqlgate/internal/pgsql"
)

// Batch admits the token and executes the statements that queue adds to the batch,
// in one transaction and one round trip. The check is first; a refusal ends the
// transaction, so the statements have no effect.
//
// The round trip includes the commit: if a callback of a queued statement returns
// an error, it cannot prevent the commit, and Batch returns ErrUncertain. Use Do
// for statements that depend on the results of others. queue must not add BEGIN,
// COMMIT or ROLLBACK. It may run more than once.
func (g *Gate) Batch(
	ctx context.Context, resource fencing.Resource, token fencing.Token, queue func(b *pgx.Batch),
) error {
	if err := storagegate.Validate(resource, token); err != nil {
		return err
	}
	err := g.run(ctx, resource, token, func() error { return g.onceBatch(ctx, resource, token, queue) })
	return g.Record(ctx, resource, token, err)
}

func (g *Gate) onceBatch(
	ctx context.Context, resource fencing.Resource, token fencing.Token, queue func(b *pgx.Batch),
) error {
	conn, err := g.pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("send the gated batch: %w", err)
	}
	defer conn.Release()
	var batch pgx.Batch
	query, args := g.hints.Fence(g.rule, resource, token)
	batch.Queue(query, args...)
	queue(&batch)
	results := conn.SendBatch(ctx, &batch)
	_, err = results.Exec()
	if refusal := g.refusal(err, resource, token); refusal != nil {
		_ = results.Close()
		return refusal
	}
	if closeErr := results.Close(); err == nil {
		err = closeErr
	}
	if err != nil { // the connection may have been lost after the commit
		return fmt.Errorf("send the gated batch: %w", commitError(err))
	}
	g.hints.Note(resource, token)
	return nil
}

// refusal converts an exception of leased_fence, whose detail is the mark. It
// returns nil for other errors, except that of a missing schema.
func (g *Gate) refusal(err error, resource fencing.Resource, token fencing.Token) error {
	var raised *pgconn.PgError
	if !errors.As(err, &raised) {
		return nil
	}
	switch raised.Code {
	case "LF001", "LF002", "LF003":
		mark, parseErr := fencing.ParseToken(raised.Detail)
		if parseErr != nil {
			return fmt.Errorf("read the mark in %w: %w", err, parseErr)
		}
		return pgsql.Judge(g.rule, resource, mark, token)
	}
	if pgsql.Missing(raised.Code) && strings.Contains(raised.Message, "leased_") { // not of a queued statement
		return pgsql.RaiseError(resource, "postgres", true, err)
	}
	return nil
}

// commitError adds ErrUncertain to the error of a commit, unless the server has
// refused it or did not receive it.
func commitError(err error) error {
	if pgsql.Explain(err) != pgsql.Unknown || pgconn.SafeToRetry(err) {
		return err
	}
	return fmt.Errorf("%w: %w", storagegate.ErrUncertain, err)
}
