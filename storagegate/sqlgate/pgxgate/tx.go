package pgxgate

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/leased-project/leased/fencing"
)

// Tx is the transaction of a write. A pgx.Tx implements it.
type Tx interface {
	Exec(ctx context.Context, sql string, arguments ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
	CopyFrom(ctx context.Context, tableName pgx.Identifier, columnNames []string, rowSrc pgx.CopyFromSource) (int64, error)
}

// checkedTx is a transaction that begins, with the check of the token, at its first
// statement.
//
// Invariants:
//
//  1. a statement is sent in a transaction, after the check: either begun is true
//     and err is nil, or the statement is in one pipeline behind BEGIN and the check;
//  2. if the check or its pipeline fails, err is set for good, and no statement is
//     sent any more.
type checkedTx struct {
	gate     *Gate
	conn     *pgx.Conn
	begin    string
	resource fencing.Resource
	token    fencing.Token

	begun bool
	err   error
}

var _ Tx = (*checkedTx)(nil)

// start begins the transaction and admits the token, unless that was done.
func (t *checkedTx) start(ctx context.Context) error {
	if !t.begun {
		t.begun = true
		t.err = t.gate.beginAdmitted(ctx, t.conn, t.begin, t.resource, t.token)
	}
	return t.err
}

// run runs write and returns its error. It returns nil only if the token was
// admitted.
func (t *checkedTx) run(ctx context.Context, write func(tx Tx) error) error {
	err := write(t)
	switch {
	case t.err != nil && err == nil:
		return t.err
	case t.err != nil && !errors.Is(err, t.err): // the caller of Do must see the refusal
		return errors.Join(err, t.err)
	case err != nil:
		return err
	}
	return t.start(ctx)
}

// Exec executes a statement. The first one shares a round trip with BEGIN and the
// check, which raises an exception for a refusal.
func (t *checkedTx) Exec(ctx context.Context, sql string, arguments ...any) (tag pgconn.CommandTag, err error) {
	if !t.begun && pipelined(arguments) {
		t.begun = true
		tag, t.err = t.execFirst(ctx, sql, arguments)
		return tag, t.err
	}
	if err := t.start(ctx); err != nil {
		return pgconn.CommandTag{}, err
	}
	return t.conn.Exec(ctx, sql, arguments...)
}

// pipelined reports whether a pipeline executes a statement with these arguments like
// Exec does. A statement without arguments may be several statements.
func pipelined(arguments []any) bool {
	if len(arguments) == 0 {
		return false
	}
	switch arguments[0].(type) {
	case pgx.QueryExecMode, pgx.QueryResultFormats, pgx.QueryResultFormatsByOID:
		return false
	}
	return true
}

func (t *checkedTx) execFirst(ctx context.Context, sql string, arguments []any) (tag pgconn.CommandTag, err error) {
	var batch pgx.Batch
	batch.Queue(t.begin)
	query, args := t.gate.hints.Fence(t.gate.rule, t.resource, t.token)
	batch.Queue(query, args...)
	batch.Queue(sql, arguments...)
	results := t.conn.SendBatch(ctx, &batch)
	if _, err = results.Exec(); err == nil {
		if _, err = results.Exec(); err != nil {
			if refusal := t.gate.refusal(err, t.resource, t.token); refusal != nil {
				err = refusal
			}
		} else {
			tag, err = results.Exec()
		}
	}
	if closeErr := results.Close(); err == nil {
		err = closeErr
	}
	return tag, err
}

// Query starts the transaction and executes a query.
func (t *checkedTx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if err := t.start(ctx); err != nil {
		return noRows{err}, err
	}
	return t.conn.Query(ctx, sql, args...)
}

// QueryRow starts the transaction and executes a query.
func (t *checkedTx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	if err := t.start(ctx); err != nil {
		return noRows{err}
	}
	return t.conn.QueryRow(ctx, sql, args...)
}

// SendBatch starts the transaction and sends a batch.
func (t *checkedTx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	if err := t.start(ctx); err != nil {
		return noResults{err}
	}
	return t.conn.SendBatch(ctx, b)
}

// CopyFrom starts the transaction and copies rows.
func (t *checkedTx) CopyFrom(
	ctx context.Context, tableName pgx.Identifier, columnNames []string, rowSrc pgx.CopyFromSource,
) (int64, error) {
	if err := t.start(ctx); err != nil {
		return 0, err
	}
	return t.conn.CopyFrom(ctx, tableName, columnNames, rowSrc)
}

// noRows is the result of a query that was not sent.
type noRows struct{ err error }

func (noRows) Close()                                       {}
func (r noRows) Err() error                                 { return r.err }
func (noRows) CommandTag() pgconn.CommandTag                { return pgconn.CommandTag{} }
func (noRows) FieldDescriptions() []pgconn.FieldDescription { return nil }
func (noRows) Next() bool                                   { return false }
func (r noRows) Scan(...any) error                          { return r.err }
func (r noRows) Values() ([]any, error)                     { return nil, r.err }
func (noRows) RawValues() [][]byte                          { return nil }
func (noRows) Conn() *pgx.Conn                              { return nil }
func (noRows) TypeMap() *pgtype.Map                         { return nil }

// noResults is the result of a batch that was not sent.
type noResults struct{ err error }

func (r noResults) Exec() (pgconn.CommandTag, error) { return pgconn.CommandTag{}, r.err }
func (r noResults) Query() (pgx.Rows, error)         { return noRows(r), r.err }
func (r noResults) QueryRow() pgx.Row                { return noRows(r) }
func (r noResults) Close() error                     { return r.err }
