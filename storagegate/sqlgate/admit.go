package sqlgate

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate/sqlgate/internal/pgsql"
)

// admit locks and raises the mark in tx, with one statement if the token
// passes; in SQLite the first mark of a resource takes two. outermost says that
// tx is the gate's own, with no savepoint around this call.
func (g *Gate) admit(ctx context.Context, tx *sql.Tx, outermost bool, resource fencing.Resource, token fencing.Token) error {
	if g.dialect == Postgres && outermost && g.hints.Likely(resource, token) {
		var mark fencing.Token
		err := tx.QueryRowContext(ctx, pgsql.Hold, string(resource)).Scan(&mark)
		if err == nil && mark == token {
			return nil
		}
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return fmt.Errorf("lock the mark of %q: %w", string(resource), err)
		}
		// A newer holder, or a wrong hint.
	}
	mark, err := g.raise(ctx, tx, resource, token)
	if errors.Is(err, sql.ErrNoRows) { // refused by SQLite, which holds its lock now
		mark, err = g.mark(ctx, tx, resource)
	} else if err == nil && mark == token {
		g.hints.Note(resource, token)
		return nil
	}
	if err != nil {
		return fmt.Errorf("raise the mark of %q (was Install called?): %w", string(resource), err)
	}
	if err := g.rule.Admit(resource, mark, token); err != nil {
		return err
	}
	return fmt.Errorf("raise the mark of %q to %d: it stayed at %d; was leased_marks changed by hand?", string(resource), token, mark)
}

// raise tries to raise the mark. The answer is a mark, which is the token if and
// only if that was admitted, or sql.ErrNoRows for a refusal.
func (g *Gate) raise(ctx context.Context, tx *sql.Tx, resource fencing.Resource, token fencing.Token) (mark fencing.Token, err error) {
	args := []any{string(resource), int64(token), int64(g.rule.MaxJump)}
	if g.dialect == Postgres {
		// The drivers keep prepared statements themselves, or must not, behind
		// a connection pooler.
		err := tx.QueryRowContext(ctx, pgsql.Admit, args...).Scan(&mark)
		return mark, err
	}
	if again := dialects[g.dialect].again; again != "" {
		stmt, err := g.again.get(ctx, g.db, again)
		if err != nil {
			return fencing.None, err
		}
		result, err := tx.StmtContext(ctx, stmt).ExecContext(ctx, args...)
		if err != nil {
			return fencing.None, err
		}
		if n, err := result.RowsAffected(); err != nil || n == 1 {
			return token, err
		}
	}
	stmt, err := g.admits.get(ctx, g.db, dialects[g.dialect].admit)
	if err != nil {
		return fencing.None, err
	}
	err = tx.StmtContext(ctx, stmt).QueryRowContext(ctx, args...).Scan(&mark)
	return mark, err
}

// prepared is a statement that is prepared on first use, so that a gate can be
// made before the table exists.
type prepared struct {
	mu   sync.Mutex
	stmt *sql.Stmt
}

func (p *prepared) get(ctx context.Context, db *sql.DB, query string) (*sql.Stmt, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stmt == nil {
		stmt, err := db.PrepareContext(ctx, query)
		if err != nil {
			return nil, fmt.Errorf("prepare: %w", err)
		}
		p.stmt = stmt
	}
	return p.stmt, nil
}
