package pgxgate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate"
	"github.com/leased-project/leased/storagegate/sqlgate"
	"github.com/leased-project/leased/storagegate/sqlgate/internal/pgsql"
)

// attempts is how often a transaction is run if PostgreSQL asks for it again,
// because of a deadlock or a conflict of serializable transactions.
const attempts = 10

// rollbackLimit is how long a rollback may take. It does not use the caller's
// context: that may be the reason for the rollback.
const rollbackLimit = 5 * time.Second

// Tx is what a write works with. A pgx.Tx is one too.
type Tx interface {
	Exec(ctx context.Context, sql string, arguments ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
	CopyFrom(ctx context.Context, tableName pgx.Identifier, columnNames []string, rowSrc pgx.CopyFromSource) (int64, error)
}

// Gate gates transactions of a pool. Install must have been called once for the
// database. What is said about isolation at sqlgate.Gate holds here too.
type Gate struct {
	storagegate.Monitor
	pool  *pgxpool.Pool
	rule  fencing.Rule
	begin string
	hints pgsql.Hints
}

var _ storagegate.Gate[Tx] = (*Gate)(nil)

// Option changes what is usual.
type Option func(*Gate)

// WithIsolation runs the transactions of Do at this level, instead of the
// database's own default.
func WithIsolation(level pgx.TxIsoLevel) Option {
	return func(g *Gate) { g.begin = "begin isolation level " + string(level) }
}

// New returns a gate over pool. The zero Rule has no bound on the jump.
func New(pool *pgxpool.Pool, rule fencing.Rule, options ...Option) *Gate {
	g := &Gate{pool: pool, rule: rule, begin: "begin"}
	for _, option := range options {
		option(g)
	}
	return g
}

// Install makes the table of the marks and what belongs to it, if they do not
// exist yet. It may run in several processes at once.
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

// Do implements storagegate.Gate. BEGIN and the check are one round trip. write
// must not commit or roll back.
func (g *Gate) Do(ctx context.Context, resource fencing.Resource, token fencing.Token, write func(tx Tx) error) error {
	return g.decide(ctx, resource, token, func() error { return g.once(ctx, g.begin, resource, token, write) })
}

// decide runs a transaction as often as PostgreSQL asks for it, and records
// the decision.
func (g *Gate) decide(ctx context.Context, resource fencing.Resource, token fencing.Token, once func() error) error {
	if err := valid(resource, token); err != nil {
		return err
	}
	var err error
	for range attempts {
		err = once()
		meaning := explain(err)
		if meaning == pgsql.EnterFirst {
			meaning = pgsql.Again
			if enterErr := g.once(ctx, readCommitted, resource, token, nothing); enterErr != nil {
				err, meaning = enterErr, explain(enterErr)
			}
		}
		if meaning != pgsql.Again || ctx.Err() != nil {
			break
		}
	}
	return g.Record(resource, token, err)
}

const readCommitted = "begin isolation level read committed"

func nothing(Tx) error { return nil }

func (g *Gate) once(ctx context.Context, begin string, resource fencing.Resource, token fencing.Token, write func(tx Tx) error) error {
	conn, err := g.pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("begin the gated transaction: %w", err)
	}
	defer conn.Release() // closes the connection if it is still in a transaction
	defer rollback(ctx, conn.Conn())
	if err := g.beginAdmitted(ctx, conn.Conn(), begin, resource, token); err != nil {
		return err
	}
	if err := write(conn.Conn()); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	tag, err := conn.Exec(ctx, "commit")
	if err != nil {
		return fmt.Errorf("commit the gated transaction: %w", settle(err))
	}
	if tag.String() == "ROLLBACK" {
		return fmt.Errorf("commit the gated transaction: %w; a statement in it failed and the write did not say so", pgx.ErrTxCommitRollback)
	}
	return nil
}

// beginAdmitted begins a transaction and admits the token, in one round trip.
func (g *Gate) beginAdmitted(ctx context.Context, conn *pgx.Conn, begin string, resource fencing.Resource, token fencing.Token) error {
	likely := g.hints.Likely(resource, token)
	var batch pgx.Batch
	batch.Queue(begin)
	if likely {
		batch.Queue(pgsql.Hold, string(resource), int64(token))
	} else {
		batch.Queue(pgsql.Admit, string(resource), int64(token), int64(g.rule.MaxJump))
	}
	results := conn.SendBatch(ctx, &batch)
	_, err := results.Exec()
	if err == nil {
		err = g.judge(results.QueryRow(), resource, token)
	}
	if closeErr := results.Close(); err == nil || errors.Is(err, pgx.ErrNoRows) {
		err = errors.Join(err, closeErr)
	}
	if likely && (errors.Is(err, pgx.ErrNoRows) || errors.Is(err, errBehind)) { // the hint was wrong
		err = g.judge(conn.QueryRow(ctx, pgsql.Admit, string(resource), int64(token), int64(g.rule.MaxJump)), resource, token)
	}
	if err == nil && !likely {
		g.hints.Note(resource, token)
	}
	return err
}

// errBehind says that the mark is below a token that the rule would admit.
var errBehind = errors.New("the mark was not raised; was leased_marks changed by hand?")

// judge reads the answer to pgsql.Admit or pgsql.Hold: a mark other than the token is a
// refusal, and the rule says which.
func (g *Gate) judge(answer pgx.Row, resource fencing.Resource, token fencing.Token) error {
	var mark fencing.Token
	if err := answer.Scan(&mark); err != nil {
		return fmt.Errorf("raise the mark of %q (was Install called?): %w", string(resource), err)
	}
	if mark == token {
		return nil
	}
	if err := g.rule.Admit(resource, mark, token); err != nil {
		return err
	}
	return fmt.Errorf("raise the mark of %q from %d to %d: %w", string(resource), mark, token, errBehind)
}

// Admit is the gate for a transaction that the caller has already begun: it
// locks and raises the mark in tx, and the caller then writes in tx and commits.
// Call it before the first read, and roll back if it returns an error. It is
// one statement. The decision is counted here; whether it lasts is decided by
// the caller's commit. At REPEATABLE READ and SERIALIZABLE call Enter before
// the transaction begins.
func (g *Gate) Admit(ctx context.Context, tx pgx.Tx, resource fencing.Resource, token fencing.Token) error {
	if err := valid(resource, token); err != nil {
		return err
	}
	answer := tx.QueryRow(ctx, pgsql.Admit, string(resource), int64(token), int64(g.rule.MaxJump))
	return g.Record(resource, token, g.judge(answer, resource, token))
}

// Mark implements storagegate.Gate.
func (g *Gate) Mark(ctx context.Context, resource fencing.Resource) (fencing.Token, error) {
	if err := resource.Validate(); err != nil {
		return fencing.None, err
	}
	return mark(ctx, g.pool, resource)
}

func mark(ctx context.Context, q interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}, resource fencing.Resource) (fencing.Token, error) {
	var mark fencing.Token
	err := q.QueryRow(ctx, pgsql.Mark, string(resource)).Scan(&mark)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return fencing.None, fmt.Errorf("read the mark of %q (was Install called?): %w", string(resource), err)
	}
	return mark, nil
}

// rollback ends a transaction that was not committed. If that fails the
// connection is closed, which ends the transaction too.
func rollback(ctx context.Context, conn *pgx.Conn) {
	if conn.IsClosed() || conn.PgConn().TxStatus() == 'I' {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackLimit)
	defer cancel()
	_, _ = conn.Exec(ctx, "rollback")
}

// valid checks what no mark has to be read for.
func valid(resource fencing.Resource, token fencing.Token) error {
	if err := resource.Validate(); err != nil {
		return err
	}
	_, err := token.Value()
	return err
}
