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

// Gate gates transactions of a *sql.DB. Call Install once for the database.
//
// Isolation: a stale write is refused at every level, because the row of the mark
// is locked. Data that a transaction reads before it is admitted may be old; Do
// admits the token first. At REPEATABLE READ and SERIALIZABLE, PostgreSQL takes
// the snapshot before a possible wait for the lock. So at these levels Do first
// raises the mark in a separate transaction, and a failed write leaves the mark
// raised.
//
// The write of Do must not commit or roll back, not even with a statement that does
// so implicitly: MariaDB and MySQL commit before DDL and LOCK TABLES, and roll back
// after a deadlock. Do then returns ErrTransactionEnded. SQLite rolls back when the
// context of a statement ends, or the disk is full or fails, and commits each later
// statement by itself: return such an error from the write. Reset needs privileges on
// the table leased_resets, which writers do not need.
type Gate struct {
	*storagegate.Base[*sql.Tx]
	db      *sql.DB
	dialect Dialect
	rule    fencing.Rule
	options *sql.TxOptions
	again   prepared
	admits  prepared
	hints   pgsql.Hints
}

// Option configures a Gate.
type Option func(*Gate)

// WithIsolation sets the isolation level of the transactions of Do. The default is
// that of the database.
func WithIsolation(level sql.IsolationLevel) Option {
	return func(g *Gate) { g.options = &sql.TxOptions{Isolation: level} }
}

// New returns a gate over db. SQLite needs a busy timeout in its connection string;
// otherwise concurrent writers fail instead of waiting.
func New(db *sql.DB, dialect Dialect, rule fencing.Rule, options ...Option) (*Gate, error) {
	if _, ok := dialects[dialect]; !ok {
		return nil, fmt.Errorf("%w: %.40q", ErrUnknownDialect, string(dialect))
	}
	g := &Gate{db: db, dialect: dialect, rule: rule}
	for _, option := range options {
		option(g)
	}
	g.Base = storagegate.NewBase(storagegate.Steps[*sql.Tx]{Write: g.write, Lower: g.lower, Mark: g.mark})
	return g, nil
}

// write executes the transaction, and repeats it if the database asks for that.
func (g *Gate) write(
	ctx context.Context, resource fencing.Resource, token fencing.Token, write func(tx *sql.Tx) error,
) error {
	options := g.options
	if write == nil && g.dialect == Postgres {
		options = readCommitted
	}
	return pgsql.Run(ctx, g.dialect.explain,
		func() error { return g.once(ctx, options, resource, token, write) },
		func() error { return g.once(ctx, readCommitted, resource, token, nil) })
}

var readCommitted = &sql.TxOptions{Isolation: sql.LevelReadCommitted}

// once executes the transaction once.
func (g *Gate) once(
	ctx context.Context, options *sql.TxOptions,
	resource fencing.Resource, token fencing.Token, write func(tx *sql.Tx) error,
) error {
	g.prepare(ctx)
	begin := g.db.BeginTx
	protect := func(context.Context, *sql.Tx) error { return nil }
	verify := func(_ context.Context, _ *sql.Tx, failed error) error { return failed }
	if g.dialect == MySQL {
		s, err := openSession(ctx, g.db)
		if err != nil {
			return fmt.Errorf("begin the gated transaction: %w", err)
		}
		defer s.close(ctx)
		begin, protect, verify = s.begin, s.protect, s.verify
	}
	tx, err := begin(ctx, options)
	if err != nil {
		return fmt.Errorf("begin the gated transaction: %w", err)
	}
	defer func() { _ = tx.Rollback() }() // no effect after a commit
	if err := g.admit(ctx, tx, true, resource, token); err != nil {
		return err
	}
	if err := protect(ctx, tx); err != nil {
		return err
	}
	if write != nil {
		err = write(tx)
	}
	if err == nil {
		err = ctx.Err()
	}
	if err := verify(ctx, tx, err); err != nil {
		return err
	}
	if err := g.commit(tx); err != nil {
		return fmt.Errorf("commit the gated transaction: %w", err)
	}
	return nil
}

// commit commits tx. It adds ErrUncertain to an error that does not say whether the
// database has committed.
func (g *Gate) commit(tx *sql.Tx) error {
	err := tx.Commit()
	if err == nil || errors.Is(err, sql.ErrTxDone) || g.dialect.explain(err) != pgsql.Unknown {
		return err
	}
	return fmt.Errorf("%w: %w", storagegate.ErrUncertain, err)
}

// Admit locks and raises the mark in a transaction that the caller has begun. The
// caller then writes in tx and commits. Call Admit before the first read, and roll
// back if it returns an error. It executes one statement. Admit counts the
// decision, even if the caller does not commit.
//
// In MariaDB and MySQL, do not execute DDL or LOCK TABLES in tx, and roll back
// after a deadlock (error 1213): they end the transaction, and later statements
// would write without a lock on the mark. In PostgreSQL at REPEATABLE READ and
// SERIALIZABLE, call Enter before the transaction begins.
func (g *Gate) Admit(ctx context.Context, tx *sql.Tx, resource fencing.Resource, token fencing.Token) error {
	if err := storagegate.Validate(resource, token); err != nil {
		return err
	}
	return g.Record(ctx, resource, token, g.admit(ctx, tx, false, resource, token))
}

func (g *Gate) mark(ctx context.Context, resource fencing.Resource) (fencing.Token, error) {
	tx, err := g.db.BeginTx(ctx, readOnly)
	if err != nil {
		return fencing.None, fmt.Errorf("begin to read the mark of %q: %w", string(resource), err)
	}
	defer func() { _ = tx.Rollback() }() // without autocommit, the next read would see this snapshot
	return g.read(ctx, tx, resource)
}

var readOnly = &sql.TxOptions{ReadOnly: true}

// read reads the mark in a transaction.
func (g *Gate) read(ctx context.Context, tx *sql.Tx, resource fencing.Resource) (fencing.Token, error) {
	var mark fencing.Token
	err := tx.QueryRowContext(ctx, dialects[g.dialect].mark, string(resource)).Scan(&mark)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return fencing.None, fmt.Errorf("read the mark of %q: %w", string(resource), err)
	}
	return mark, nil
}
