package sqlgate

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate/sqlgate/internal/pgsql"
)

// admit locks and raises the mark in tx, with one statement if the token is
// admitted; the first mark of a resource takes two in PostgreSQL and SQLite.
// outermost means that tx was begun by the gate and there is no savepoint.
func (g *Gate) admit(
	ctx context.Context, tx *sql.Tx, outermost bool, resource fencing.Resource, token fencing.Token,
) error {
	if g.dialect == Postgres && outermost {
		admitted, err := g.admitFirst(ctx, tx, resource, token)
		if admitted || err != nil {
			return err
		}
	}
	mark, err := g.raise(ctx, tx, resource, token)
	if errors.Is(err, sql.ErrNoRows) { // SQLite refused, and holds its lock now
		mark, err = g.read(ctx, tx, resource)
	} else if err == nil && mark == token {
		g.hints.Note(resource, token)
		return nil
	}
	if err != nil {
		return pgsql.RaiseError(resource, string(g.dialect), g.dialect.missing(err), err)
	}
	return pgsql.Judge(g.rule, resource, mark, token)
}

// admitFirst admits the token with the first statement of a transaction in
// PostgreSQL. It returns false if the token is refused or raise must decide.
func (g *Gate) admitFirst(
	ctx context.Context, tx *sql.Tx, resource fencing.Resource, token fencing.Token,
) (bool, error) {
	var mark fencing.Token
	query, args := g.hints.First(g.rule, resource, token)
	err := tx.QueryRowContext(ctx, query, args...).Scan(&mark)
	switch {
	case err == nil:
		g.hints.Note(resource, token)
		return true, nil
	case errors.Is(err, sql.ErrNoRows):
		return false, nil
	}
	return false, pgsql.RaiseError(resource, string(g.dialect), g.dialect.missing(err), err)
}

// raise tries to raise the mark. It returns the mark, which is the token if and
// only if the token was admitted, or sql.ErrNoRows for a refusal.
func (g *Gate) raise(
	ctx context.Context, tx *sql.Tx, resource fencing.Resource, token fencing.Token,
) (mark fencing.Token, err error) {
	args := []any{string(resource), int64(token), int64(g.rule.Bound())}
	if g.dialect == Postgres {
		// The drivers cache prepared statements themselves, unless they must not
		// because of a connection pooler.
		err := tx.QueryRowContext(ctx, pgsql.Admit, args...).Scan(&mark)
		return mark, err
	}
	if again := dialects[g.dialect].again; again != "" {
		result, err := g.again.exec(ctx, tx, again, args...)
		if err != nil {
			return fencing.None, err
		}
		if n, err := result.RowsAffected(); err != nil || n == 1 {
			return token, err
		}
	}
	err = g.admits.queryRow(ctx, tx, dialects[g.dialect].admit, args...).Scan(&mark)
	return mark, err
}

// prepare prepares the statements once. It uses its own connection, so it must not
// be called while the caller holds one: a bounded pool may have no other. If it
// fails or runs in another goroutine, transactions use unprepared statements.
func (g *Gate) prepare(ctx context.Context) {
	if g.dialect == Postgres {
		return
	}
	g.again.prepare(ctx, g.db, dialects[g.dialect].again)
	g.admits.prepare(ctx, g.db, dialects[g.dialect].admit)
}

// prepared is a statement that is prepared on first use, so that a gate can be
// created before the table exists.
type prepared struct {
	mu   sync.Mutex
	stmt atomic.Pointer[sql.Stmt]
}

func (p *prepared) prepare(ctx context.Context, db *sql.DB, query string) {
	if query == "" || p.stmt.Load() != nil || !p.mu.TryLock() {
		return
	}
	defer p.mu.Unlock()
	if p.stmt.Load() == nil {
		if stmt, err := db.PrepareContext(ctx, query); err == nil {
			p.stmt.Store(stmt)
		}
	}
}

// exec executes the statement in a transaction, prepared or not.
func (p *prepared) exec(ctx context.Context, tx *sql.Tx, query string, args ...any) (sql.Result, error) {
	if stmt := p.stmt.Load(); stmt != nil {
		return tx.StmtContext(ctx, stmt).ExecContext(ctx, args...)
	}
	return tx.ExecContext(ctx, query, args...)
}

// queryRow is exec for a statement that returns a row.
func (p *prepared) queryRow(ctx context.Context, tx *sql.Tx, query string, args ...any) *sql.Row {
	if stmt := p.stmt.Load(); stmt != nil {
		return tx.StmtContext(ctx, stmt).QueryRowContext(ctx, args...)
	}
	return tx.QueryRowContext(ctx, query, args...)
}
