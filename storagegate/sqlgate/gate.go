package sqlgate

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate"
	"github.com/leased-project/leased/storagegate/sqlgate/internal/pgsql"
)

// attempts is how often a transaction is run if the database asks for it again,
// because of a deadlock or a conflict of serializable transactions.
const attempts = 10

// Gate gates transactions of a *sql.DB. Install must have been called once for
// the database.
//
// Isolation: the row lock decides, so every level keeps a stale write out. What
// a transaction reads before it has passed the gate may be old; Do passes it
// first. PostgreSQL at REPEATABLE READ and SERIALIZABLE sees the database as it
// was before a possible wait for the lock: there, Do raises the mark in a
// transaction of its own first, and a failed write leaves the mark raised.
type Gate struct {
	storagegate.Monitor
	db      *sql.DB
	dialect Dialect
	rule    fencing.Rule
	options *sql.TxOptions
	again   prepared
	admits  prepared
	hints   pgsql.Hints
}

var _ storagegate.Gate[*sql.Tx] = (*Gate)(nil)

// Option changes what is usual.
type Option func(*Gate)

// WithIsolation runs the transactions of Do at this level, instead of the
// database's own default.
func WithIsolation(level sql.IsolationLevel) Option {
	return func(g *Gate) { g.options = &sql.TxOptions{Isolation: level} }
}

// New returns a gate over db. The zero Rule has no bound on the jump. SQLite
// needs a busy timeout in its connection string, else writers that meet fail
// instead of waiting.
func New(db *sql.DB, dialect Dialect, rule fencing.Rule, options ...Option) (*Gate, error) {
	if _, ok := dialects[dialect]; !ok {
		return nil, fmt.Errorf("%w: %.40q", ErrUnknownDialect, string(dialect))
	}
	g := &Gate{db: db, dialect: dialect, rule: rule}
	for _, option := range options {
		option(g)
	}
	return g, nil
}

// Do implements storagegate.Gate. write must not commit or roll back, by
// statements either: MariaDB and MySQL commit by themselves before DDL and LOCK
// TABLES, and roll back after a deadlock. Do returns ErrTransactionEnded then.
func (g *Gate) Do(ctx context.Context, resource fencing.Resource, token fencing.Token, write func(tx *sql.Tx) error) error {
	return g.run(ctx, g.options, resource, token, write)
}

// run makes the transaction as often as the database asks for it, and records
// the decision.
func (g *Gate) run(ctx context.Context, options *sql.TxOptions, resource fencing.Resource, token fencing.Token, write func(tx *sql.Tx) error) error {
	if err := valid(resource, token); err != nil {
		return err
	}
	var err error
	for range attempts {
		err = g.once(ctx, options, resource, token, write)
		meaning := g.dialect.explain(err)
		if meaning == pgsql.EnterFirst {
			meaning = pgsql.Again
			if enterErr := g.once(ctx, readCommitted, resource, token, nothing); enterErr != nil {
				err, meaning = enterErr, g.dialect.explain(enterErr)
			}
		}
		if meaning != pgsql.Again || ctx.Err() != nil {
			break
		}
	}
	return g.Record(resource, token, err)
}

var readCommitted = &sql.TxOptions{Isolation: sql.LevelReadCommitted}

func nothing(*sql.Tx) error { return nil }

func (g *Gate) once(ctx context.Context, options *sql.TxOptions, resource fencing.Resource, token fencing.Token, write func(tx *sql.Tx) error) error {
	g.prepare(ctx)
	begin, enclose, intact := g.db.BeginTx, unchecked, unchecked
	if g.dialect == MySQL {
		s, err := openSession(ctx, g.db)
		if err != nil {
			return fmt.Errorf("begin the gated transaction: %w", err)
		}
		defer s.close(ctx)
		begin, enclose, intact = s.conn.BeginTx, s.enclose, s.intact
	}
	tx, err := begin(ctx, options)
	if err != nil {
		return fmt.Errorf("begin the gated transaction: %w", err)
	}
	defer func() { _ = tx.Rollback() }() // no effect after a commit
	if err := g.admit(ctx, tx, true, resource, token); err != nil {
		return err
	}
	if err := enclose(ctx, tx); err != nil {
		return err
	}
	if err := write(tx); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := intact(ctx, tx); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		if errors.Is(err, sql.ErrTxDone) || g.dialect.explain(err) != pgsql.Unknown {
			return fmt.Errorf("commit the gated transaction: %w", err)
		}
		return fmt.Errorf("commit the gated transaction: %w: %w", storagegate.ErrUncertain, err)
	}
	return nil
}

// Admit is the gate for a transaction that the caller has already begun: it
// locks and raises the mark in tx, and the caller then writes in tx and commits.
// Call it before the first read, and roll back if it returns an error. It is
// one statement. The decision is counted here; whether it lasts is decided by
// the caller's commit. In MariaDB and MySQL run no DDL and no LOCK TABLES in tx,
// and end it after a deadlock (error 1213): these end the transaction, and what
// follows would be written without a lock on the mark. In PostgreSQL at REPEATABLE READ and SERIALIZABLE, call
// Enter before the transaction begins.
func (g *Gate) Admit(ctx context.Context, tx *sql.Tx, resource fencing.Resource, token fencing.Token) error {
	if err := valid(resource, token); err != nil {
		return err
	}
	return g.Record(resource, token, g.admit(ctx, tx, false, resource, token))
}

// Enter implements storagegate.Gate.
func (g *Gate) Enter(ctx context.Context, resource fencing.Resource, token fencing.Token) error {
	if token != fencing.None {
		options := g.options
		if g.dialect == Postgres {
			options = readCommitted
		}
		return g.run(ctx, options, resource, token, nothing)
	}
	mark, err := g.Mark(ctx, resource)
	if err != nil {
		return err
	}
	return g.Record(resource, token, g.rule.Enter(resource, mark, token))
}

// Mark implements storagegate.Gate.
func (g *Gate) Mark(ctx context.Context, resource fencing.Resource) (fencing.Token, error) {
	if err := resource.Validate(); err != nil {
		return fencing.None, err
	}
	return g.mark(ctx, g.db, resource)
}

func (g *Gate) mark(ctx context.Context, q queryer, resource fencing.Resource) (fencing.Token, error) {
	var mark fencing.Token
	err := q.QueryRowContext(ctx, dialects[g.dialect].mark, string(resource)).Scan(&mark)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return fencing.None, fmt.Errorf("read the mark of %q: %w", string(resource), err)
	}
	return mark, nil
}

type queryer interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// valid checks what no mark has to be read for.
func valid(resource fencing.Resource, token fencing.Token) error {
	if err := resource.Validate(); err != nil {
		return err
	}
	_, err := token.Value()
	return err
}
