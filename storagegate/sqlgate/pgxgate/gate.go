package pgxgate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate"
	"github.com/leased-project/leased/storagegate/sqlgate"
	"github.com/leased-project/leased/storagegate/sqlgate/internal/pgsql"
)

// rollbackTimeout limits a rollback. It replaces the caller's context, which may
// have ended.
const rollbackTimeout = 5 * time.Second

// Gate gates transactions of a pool. Call Install once for the database. See
// sqlgate.Gate for the effect of isolation levels.
//
// Do sends BEGIN and the check in one round trip. If this gate has already admitted
// the token, the first Exec with arguments is part of that round trip: the write then
// runs even if a newer token was admitted since, and that Exec returns the refusal. The
// write must not commit or roll back. Enter is one round trip. Reset needs privileges
// on the table leased_resets, which writers do not need.
type Gate struct {
	*storagegate.Base[Tx]
	pool  *pgxpool.Pool
	rule  fencing.Rule
	begin string
	hints pgsql.Hints
}

// Option configures a Gate.
type Option func(*Gate)

// WithIsolation sets the isolation level of the transactions of Do. The default is
// that of the database.
func WithIsolation(level pgx.TxIsoLevel) Option {
	return func(g *Gate) { g.begin = "begin isolation level " + string(level) }
}

// New returns a gate over pool.
func New(pool *pgxpool.Pool, rule fencing.Rule, options ...Option) *Gate {
	g := &Gate{pool: pool, rule: rule, begin: "begin"}
	for _, option := range options {
		option(g)
	}
	g.Base = storagegate.NewBase(storagegate.Steps[Tx]{Write: g.write, Lower: g.lower, Mark: g.mark})
	return g
}

// Install creates the table for marks, its functions and its triggers if they are
// missing. It can run in several processes at once.
func (g *Gate) Install(ctx context.Context) error {
	return g.plain(func(gate *sqlgate.Gate) error { return gate.Install(ctx) })
}

func (g *Gate) lower(ctx context.Context, resource fencing.Resource, expected, to fencing.Token) error {
	return g.plain(func(gate *sqlgate.Gate) error { return gate.Reset(ctx, resource, expected, to) })
}

func (g *Gate) mark(ctx context.Context, resource fencing.Resource) (mark fencing.Token, err error) {
	err = g.plain(func(gate *sqlgate.Gate) error {
		mark, err = gate.Mark(ctx, resource)
		return err
	})
	return mark, err
}

// plain calls use with a gate of database/sql over the same pool, for operations that
// are not worth a second implementation for pgx.
func (g *Gate) plain(use func(gate *sqlgate.Gate) error) error {
	db := stdlib.OpenDBFromPool(g.pool)
	defer db.Close() // ends a goroutine of database/sql; the pool stays open
	gate, err := sqlgate.New(db, sqlgate.Postgres, g.rule)
	if err != nil {
		return err
	}
	return use(gate)
}

func (g *Gate) write(
	ctx context.Context, resource fencing.Resource, token fencing.Token, write func(tx Tx) error,
) error {
	return g.run(ctx, resource, token, func() error {
		if write == nil {
			return g.onceBatch(ctx, resource, token, func(*pgx.Batch) {})
		}
		return g.once(ctx, g.begin, resource, token, write)
	})
}

// run executes a transaction, and repeats it if PostgreSQL asks for that.
func (g *Gate) run(ctx context.Context, resource fencing.Resource, token fencing.Token, once func() error) error {
	return pgsql.Run(ctx, pgsql.Explain, once,
		func() error { return g.once(ctx, readCommitted, resource, token, nothing) })
}

const readCommitted = "begin isolation level read committed"

func nothing(Tx) error { return nil }

// once executes the transaction once.
func (g *Gate) once(
	ctx context.Context, begin string, resource fencing.Resource, token fencing.Token, write func(tx Tx) error,
) error {
	conn, err := g.pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("begin the gated transaction: %w", err)
	}
	defer conn.Release() // closes the connection if it is still in a transaction
	defer rollback(ctx, conn.Conn())
	tx := &checkedTx{gate: g, conn: conn.Conn(), begin: begin, resource: resource, token: token}
	if !g.hints.Likely(resource, token) {
		// An older holder may still write, so write must not run before the mark is raised.
		if err := tx.start(ctx); err != nil {
			return err
		}
	}
	if err := tx.run(ctx, write); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	tag, err := conn.Exec(ctx, "commit")
	if err != nil {
		return fmt.Errorf("commit the gated transaction: %w", commitError(err))
	}
	if tag.String() == "ROLLBACK" {
		return fmt.Errorf("commit the gated transaction: %w; a statement failed and the write did not return its error",
			pgx.ErrTxCommitRollback)
	}
	g.hints.Note(resource, token)
	return nil
}

// beginAdmitted begins a transaction and admits the token, in one round trip, or in
// two for the first token of a resource and a refusal.
func (g *Gate) beginAdmitted(
	ctx context.Context, conn *pgx.Conn, begin string, resource fencing.Resource, token fencing.Token,
) error {
	var batch pgx.Batch
	batch.Queue(begin)
	query, args := g.hints.First(g.rule, resource, token)
	batch.Queue(query, args...)
	results := conn.SendBatch(ctx, &batch)
	_, err := results.Exec()
	if err == nil {
		err = g.admitted(results.QueryRow(), resource, token)
	}
	if closeErr := results.Close(); err == nil || errors.Is(err, pgx.ErrNoRows) {
		err = errors.Join(err, closeErr)
	}
	if errors.Is(err, pgx.ErrNoRows) {
		result := conn.QueryRow(ctx, pgsql.Admit, string(resource), int64(token), int64(g.rule.Bound()))
		err = g.admitted(result, resource, token)
	}
	return err
}

// admitted returns nil if the result of pgsql.Admit or Hints.First is the token, and
// otherwise the refusal.
func (g *Gate) admitted(result pgx.Row, resource fencing.Resource, token fencing.Token) error {
	var mark fencing.Token
	if err := result.Scan(&mark); err != nil {
		var answer *pgconn.PgError
		return pgsql.RaiseError(resource, "postgres", errors.As(err, &answer) && pgsql.Missing(answer.Code), err)
	}
	return pgsql.Judge(g.rule, resource, mark, token)
}

// Admit locks and raises the mark in a transaction that the caller has begun. The
// caller then writes in tx and commits. Call Admit before the first read, and roll
// back if it returns an error. It executes one statement. Admit counts the
// decision, even if the caller does not commit. At REPEATABLE READ and
// SERIALIZABLE, call Enter before the transaction begins.
func (g *Gate) Admit(ctx context.Context, tx pgx.Tx, resource fencing.Resource, token fencing.Token) error {
	if err := storagegate.Validate(resource, token); err != nil {
		return err
	}
	result := tx.QueryRow(ctx, pgsql.Admit, string(resource), int64(token), int64(g.rule.Bound()))
	return g.Record(ctx, resource, token, g.admitted(result, resource, token))
}

// rollback rolls back a transaction that was not committed. If that fails, the
// connection is closed, which also ends the transaction.
func rollback(ctx context.Context, conn *pgx.Conn) {
	if conn.IsClosed() || conn.PgConn().TxStatus() == 'I' {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
	defer cancel()
	_, _ = conn.Exec(ctx, "rollback")
}
