package sqlgate_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate"
	"github.com/leased-project/leased/storagegate/gatetest"
	"github.com/leased-project/leased/storagegate/sqlgate"
)

// plainSQL works like a program in any language: it begins a transaction, calls
// the fence in the database, writes and commits. The suite runs with it, so that
// the fence in the database applies the same rule.
type plainSQL struct {
	storagegate.Monitor
	storage storage
	db      *sql.DB
	jump    fencing.Token
}

var fenceCalls = map[sqlgate.Dialect]string{
	sqlgate.Postgres: `SELECT leased_fence($1, $2, $3)`,
	sqlgate.MySQL:    `CALL leased_fence_bounded(?, ?, ?)`,
	sqlgate.SQLite:   `INSERT INTO leased_fence (resource, token, max_jump) VALUES (?, ?, ?)`,
}

func (p *plainSQL) Do(ctx context.Context, resource fencing.Resource, token fencing.Token,
	write func(*sql.Tx) error) error {
	if err := resource.Validate(); err != nil {
		return err // the database does not check for printable names
	}
	var err error
	for range 20 { // repeat after a deadlock
		err = p.once(ctx, resource, token, write)
		var e *mysql.MySQLError
		if !errors.As(err, &e) || e.Number != 1213 {
			break
		}
	}
	return p.Record(ctx, resource, token, err)
}

func (p *plainSQL) once(ctx context.Context, resource fencing.Resource, token fencing.Token,
	write func(*sql.Tx) error) error {
	tx, err := p.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(ctx, fenceCalls[p.storage.dialect], string(resource), int64(token),
		int64(p.jump)); err != nil {
		return p.translate(err, resource, token)
	}
	if err := write(tx); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return tx.Commit()
}

// translate converts a refusal of the database to the error of a gate.
func (p *plainSQL) translate(err error, resource fencing.Resource, token fencing.Token) error {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		mark, _ := fencing.ParseToken(pg.Detail)
		switch pg.Code {
		case "LF001", "LF002":
			return &fencing.StaleError{Resource: resource, Token: token, Mark: mark}
		case "LF003":
			return &fencing.JumpError{Resource: resource, Token: token, Mark: mark,
				MaxJump: fencing.Rule{MaxJump: p.jump}.Bound()}
		case "LF004":
			return fencing.ErrInvalidToken
		}
		return err
	}
	mark, markErr := p.Mark(context.Background(), resource)
	var my *mysql.MySQLError
	var lite interface{ Code() int }
	switch {
	case markErr != nil:
		return markErr
	case errors.As(err, &my) && (my.Number == 31001 || my.Number == 31002):
		return &fencing.StaleError{Resource: resource, Token: token, Mark: mark}
	case errors.As(err, &my) && my.Number == 31003:
		return &fencing.JumpError{Resource: resource, Token: token, Mark: mark,
			MaxJump: fencing.Rule{MaxJump: p.jump}.Bound()}
	case errors.As(err, &my) && my.Number == 31004:
		return fencing.ErrInvalidToken
	case errors.As(err, &lite) && lite.Code() == 1811: // refused by a trigger
		switch {
		case token > fencing.MaxToken:
			return fencing.ErrInvalidToken
		case mark > token:
			return &fencing.StaleError{Resource: resource, Token: token, Mark: mark}
		default:
			return &fencing.JumpError{Resource: resource, Token: token, Mark: mark,
				MaxJump: fencing.Rule{MaxJump: p.jump}.Bound()}
		}
	}
	return err
}

func (p *plainSQL) Enter(ctx context.Context, resource fencing.Resource, token fencing.Token) error {
	if token != fencing.None {
		return p.Do(ctx, resource, token, func(*sql.Tx) error { return nil })
	}
	return storagegate.RefuseTokenless(ctx, p, resource)
}

func (p *plainSQL) Mark(ctx context.Context, resource fencing.Resource) (fencing.Token, error) {
	gate, err := sqlgate.New(p.db, p.storage.dialect, fencing.Rule{})
	if err != nil {
		return fencing.None, err
	}
	return gate.Mark(ctx, resource)
}

func TestFenceInTheDatabase(t *testing.T) {
	for _, dialect := range dialects {
		t.Run(string(dialect), func(t *testing.T) {
			t.Parallel()
			s := newSuiteStorage(t, dialect)
			gatetest.Run(t, func(t *testing.T) gatetest.Opener {
				s.empty(t)
				return func(t testing.TB, rule fencing.Rule) gatetest.Subject {
					db := s.handle(t)
					return gatetest.Adapt(&plainSQL{storage: s.storage, db: db, jump: rule.MaxJump}, s.put, s.get(db))
				}
			})
		})
	}
}

func TestRefusalAbortsThePostgresTransaction(t *testing.T) {
	s := newStorage(t, sqlgate.Postgres)
	require.NoError(t, s.gate(t, fencing.Rule{}).Enter(t.Context(), "orders", 9))
	tx, err := s.open(t).BeginTx(t.Context(), nil)
	require.NoError(t, err)
	require.NoError(t, s.put(t.Context(), tx, "orders", "written before the check"))
	_, err = tx.ExecContext(t.Context(), `SELECT leased_fence('orders', 8)`)
	require.ErrorContains(t, err, "stale fencing token 8 for 'orders': 9 has been admitted")
	require.Error(t, tx.Commit(), "code that ignores the refusal must not commit")
	value, err := s.get(s.open(t))(t.Context(), "orders")
	require.NoError(t, err)
	require.Empty(t, value)
}
