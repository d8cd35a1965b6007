package pgxgate

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate"
	"github.com/leased-project/leased/storagegate/sqlgate/internal/pgsql"
)

// Batch admits the token and runs the statements that queue adds to the batch,
// in one transaction and one round trip. The check comes first and ends the
// transaction if it refuses, so the statements have no effect then.
//
// The commit is part of the trip: a callback on a queued statement that returns
// an error cannot stop it, and Batch then returns ErrUncertain. Statements that
// depend on what others return belong in Do. queue must not add BEGIN, COMMIT
// or ROLLBACK; it may run more than once.
func (g *Gate) Batch(ctx context.Context, resource fencing.Resource, token fencing.Token, queue func(b *pgx.Batch)) error {
	return g.decide(ctx, resource, token, func() error { return g.onceBatch(ctx, resource, token, queue) })
}

// Enter implements storagegate.Gate, in one round trip.
func (g *Gate) Enter(ctx context.Context, resource fencing.Resource, token fencing.Token) error {
	if token != fencing.None {
		return g.Batch(ctx, resource, token, func(*pgx.Batch) {})
	}
	mark, err := g.Mark(ctx, resource)
	if err != nil {
		return err
	}
	return g.Record(resource, token, g.rule.Enter(resource, mark, token))
}

func (g *Gate) onceBatch(ctx context.Context, resource fencing.Resource, token fencing.Token, queue func(b *pgx.Batch)) error {
	conn, err := g.pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("send the gated batch: %w", err)
	}
	defer conn.Release()
	var batch pgx.Batch
	batch.Queue(pgsql.Fence, string(resource), int64(token), int64(g.rule.MaxJump))
	queue(&batch)
	err = conn.SendBatch(ctx, &batch).Close()
	if refusal := g.refusal(err, resource, token); refusal != nil {
		return refusal
	}
	if err != nil {
		return fmt.Errorf("send the gated batch: %w", settle(err))
	}
	g.hints.Note(resource, token)
	return nil
}

// refusal is the typed form of what leased_fence raises, nil if err is nothing
// of the kind. The detail is the mark.
func (g *Gate) refusal(err error, resource fencing.Resource, token fencing.Token) error {
	var raised *pgconn.PgError
	if !errors.As(err, &raised) {
		return nil
	}
	switch raised.Code {
	case "LF001", "LF002", "LF003":
	default:
		return nil
	}
	mark, parseErr := fencing.ParseToken(raised.Detail)
	if parseErr != nil {
		return fmt.Errorf("read the mark in %w: %w", err, parseErr)
	}
	if raised.Code == "LF003" {
		return &fencing.JumpError{Resource: resource, Token: token, Mark: mark, MaxJump: g.rule.MaxJump}
	}
	return &fencing.StaleError{Resource: resource, Token: token, Mark: mark}
}

// explain is the meaning of an error for the transaction it ended.
func explain(err error) pgsql.Meaning {
	var answer *pgconn.PgError
	if errors.As(err, &answer) {
		return pgsql.Explain(answer.Code)
	}
	return pgsql.Unknown
}

// settle marks an error of a commit as uncertain, unless the server said no or
// never heard of it.
func settle(err error) error {
	if explain(err) != pgsql.Unknown || pgconn.SafeToRetry(err) {
		return err
	}
	return fmt.Errorf("%w: %w", storagegate.ErrUncertain, err)
}
