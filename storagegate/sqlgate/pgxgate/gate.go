package pgxgate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

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
type Gate struct {
	storagegate.Monitor
	pool  *pgxpool.Pool
	rule  fencing.Rule
	begin string
	hints pgsql.Hints
}

var _ storagegate.Gate[Tx] = (*Gate)(nil)

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
	return g
}

// Install creates the table for marks, its functions and its triggers if they are
// missing. It can run in several processes at once.
func (g *Gate) Install(ctx context.Context) error {
	ddl, err := sqlgate.DDL(sqlgate.Postgres)
	if err != nil {
		return err
	}
	err = pgx.BeginFunc(ctx, g.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, pgsql.InstallLock); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, ddl)
		return err
	})
	if err != nil {
		return fmt.Errorf("install the marks: %w", err)
	}
	return nil
}

// Do implements storagegate.Gate. It sends BEGIN and the check in one round trip. If
// this gate has already admitted the token, the first Exec with arguments is part of
// that round trip: write then runs even if a newer token was admitted since, and that
// Exec returns the refusal. write must not commit or roll back.
func (g *Gate) Do(ctx context.Context, resource fencing.Resource, token fencing.Token, write func(tx Tx) error) error {
	return g.decide(ctx, resource, token, func() error { return g.once(ctx, g.begin, resource, token, write) })
}

// decide executes a transaction, repeats it if PostgreSQL asks for that, and
// records the decision.
func (g *Gate) decide(ctx context.Context, resource fencing.Resource, token fencing.Token, once func() error) error {
	if err := storagegate.Validate(resource, token); err != nil {
		return err
	}
	err := pgsql.Run(ctx, explain, once,
		func() error { return g.once(ctx, readCommitted, resource, token, nothing) })
	return g.Record(ctx, resource, token, err)
}

const readCommitted = "begin isolation level read committed"

func nothing(Tx) error { return nil }

// once executes the transaction once.
func (g *Gate) once(ctx context.Context, begin string, resource fencing.Resource, token fencing.Token, write func(tx Tx) error) error {
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
		return fmt.Errorf("commit the gated transaction: %w; a statement failed and the write did not return its error", pgx.ErrTxCommitRollback)
	}
	g.hints.Note(resource, token)
	return nil
}

// beginAdmitted begins a transaction and admits the token, in one round trip, or in
// two for the first token of a resource and a refusal.
func (g *Gate) beginAdmitted(ctx context.Context, conn *pgx.Conn, begin string, resource fencing.Resource, token fencing.Token) error {
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
		err = g.admitted(conn.QueryRow(ctx, pgsql.Admit, string(resource), int64(token), int64(g.rule.Bound())), resource, token)
	}
	return err
}

// admitted returns nil if the result of pgsql.Admit or Hints.First is the token, and
// otherwise the refusal.
func (g *Gate) admitted(result pgx.Row, resource fencing.Resource, token fencing.Token) error {
	var mark fencing.Token
	if err := result.Scan(&mark); err != nil {
		return fmt.Errorf("raise the mark of %q (was Install called?): %w", string(resource), err)
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

// Mark implements storagegate.Gate.
func (g *Gate) Mark(ctx context.Context, resource fencing.Resource) (fencing.Token, error) {
	if err := resource.Validate(); err != nil {
		return fencing.None, err
	}
	var mark fencing.Token
	err := g.pool.QueryRow(ctx, pgsql.Mark, string(resource)).Scan(&mark)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return fencing.None, fmt.Errorf("read the mark of %q (was Install called?): %w", string(resource), err)
	}
	return mark, nil
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
