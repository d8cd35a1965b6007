package postgres

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

// Backend is an engine.Backend on the functions in a PostgreSQL database.
type Backend struct {
	pool               *database
	logger             *slog.Logger
	listener           *listener
	acquires, releases *batches
}

var _ engine.Backend = (*Backend)(nil)

// database is a pool of connections to a server that may become silent. A query without an answer gives up its
// connection after answerLimit: a few of them would otherwise occupy the whole pool.
type database struct {
	*pgxpool.Pool
	answerLimit time.Duration
}

// limit returns the context of a query.
func (d *database) limit(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, d.answerLimit)
}

// New returns a Backend on the database of pool, in which DDL was run. It uses one more
// connection while it has waiters. Close it before the pool.
func New(ctx context.Context, pool *pgxpool.Pool, logger *slog.Logger) (*Backend, error) {
	if logger == nil {
		logger = slog.Default()
	}
	db := &database{Pool: pool, answerLimit: 10 * time.Second}
	b := &Backend{pool: db, logger: logger, listener: newListener(db, logger)}
	alone := &alone{room: max(1, int(pool.Config().MaxConns/2)), locks: map[string]*ownCalls{}}
	b.acquires = &batches{verb: "acquire", send: b.acquire, alone: alone, underWay: map[string]bool{}}
	b.releases = &batches{verb: "release", send: b.release, alone: alone, underWay: map[string]bool{}}
	if _, err := b.Inspect(ctx, ""); err != nil { // no lock has this name, so the answer is short
		return nil, fmt.Errorf("use the database: %w", err)
	}
	return b, nil
}

// Close ends the connection that wakes waiters. It leaves leases and sessions as they are.
func (b *Backend) Close() { b.listener.close() }

// Open returns a session. The database keeps leases, not sessions, so it does not call the
// database.
func (b *Backend) Open(_ context.Context, config engine.SessionConfig) (engine.Session, error) {
	if config.Clock == nil {
		config.Clock = engine.SystemClock()
	}
	return &session{backend: b, config: config}, nil
}

// partyColumns are the columns of leased_inspect that party reads. Times are numbers of nanoseconds: their text depends
// on the settings IntervalStyle and DateStyle.
const partyColumns = "i.token, coalesce(i.attempt, ''), i.owner, coalesce(i.holder, ''), i.metadata, " +
	"(extract(epoch FROM i.since) * 1e9)::bigint, coalesce((extract(epoch FROM i.remaining) * 1e9)::bigint, 0)"

// Inspect returns the holder and the waiters of a lock.
func (b *Backend) Inspect(ctx context.Context, resource fencing.Resource) (engine.Status, error) {
	status := engine.Status{Resource: resource, Mode: engine.Correctness}
	limited, cancel := b.pool.limit(ctx)
	defer cancel()
	// The rows have the error of the query, too.
	rows, _ := b.pool.Query(limited, "SELECT "+partyColumns+" FROM leased_inspect($1) i", string(resource))
	parties, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (engine.Party, error) { return party(row) })
	if err != nil {
		return status, failure(ctx, "inspect", resource, err)
	}
	for _, p := range parties {
		add(&status, p)
	}
	return status, nil
}

// add adds a holder or a waiter to a status.
func add(status *engine.Status, p engine.Party) {
	if p.Token.Valid() {
		status.Holders = append(status.Holders, p)
	} else {
		status.Waiters = append(status.Waiters, p)
	}
}

// party reads a row of leased_inspect, and the columns that follow.
func party(row pgx.CollectableRow, others ...any) (p engine.Party, err error) {
	var (
		attempt  string
		metadata []byte
		since    int64
	)
	err = row.Scan(append([]any{&p.Token, &attempt, &p.User, &p.Holder, &metadata, &since, (*int64)(&p.TTL)},
		others...)...)
	p.Since = time.Unix(0, since)
	p.Metadata = texts(metadata)
	p.Session, p.Nonce = parseAttempt(attempt)
	return p, err
}

// object returns metadata as a JSON object, nil if there is none. As a text it is accepted in each
// pgx.QueryExecMode.
func object(metadata map[string]string) *string {
	if len(metadata) == 0 {
		return nil
	}
	encoded, err := json.Marshal(metadata)
	if err != nil {
		panic(err) // texts have an encoding
	}
	text := string(encoded)
	return &text
}

// texts returns the values of a JSON object as texts. Callers of the functions may use any JSON as metadata, also such
// that Go cannot decode: then texts returns nil, because the locks of others are to be shown.
func texts(object []byte) (values map[string]string) {
	var decoded map[string]any
	decoder := json.NewDecoder(bytes.NewReader(object))
	decoder.UseNumber() // a number may be too large for a float64
	if decoder.Decode(&decoded) != nil {
		return nil
	}
	for key, value := range decoded {
		if values == nil {
			values = map[string]string{}
		}
		values[key] = fmt.Sprint(value)
	}
	return values
}

// watchPause is the time between two looks at a watched lock.
const watchPause = 250 * time.Millisecond

// Watch asks for the status of a lock four times per second, since a notification for each
// change would slow down every transaction of the database.
func (b *Backend) Watch(ctx context.Context, resource fencing.Resource, changed func(engine.Status)) error {
	return engine.Poll(ctx, watchPause, func() (engine.Status, error) { return b.Inspect(ctx, resource) }, changed)
}

// codeEnded is the SQLSTATE of an attempt that has ended.
const codeEnded = "LL001"

// failure returns the error of a call. A statement that the database refused had no effect. A
// connection that ended may have lost the answer of a commit.
func failure(ctx context.Context, call string, resource fencing.Resource, err error) error {
	if ctx.Err() != nil {
		return engine.Cause(ctx)
	}
	kind := engine.ErrUncertain
	var (
		refused   *pgconn.PgError
		noConnect *pgconn.ConnectError
	)
	if errors.As(err, &refused) {
		kind = refusalKind(refused)
	}
	// Nothing was sent, or it was undone.
	if errors.Is(kind, engine.ErrUncertain) && (errors.As(err, &noConnect) || pgconn.SafeToRetry(err) ||
		errors.Is(err, errBusy) || errors.Is(err, errCrowded)) {
		kind = engine.ErrUnavailable
	}
	return fmt.Errorf("%s %q: %w: %s", call, string(resource), kind, err.Error())
}

// refusalKind returns the sentinel for an error of the database.
func refusalKind(err *pgconn.PgError) error {
	switch {
	case severity(err) == "PANIC": // whatever the code, the transaction may be committed
		return engine.ErrUncertain
	case err.Code == codeEnded:
		return engine.ErrHeld
	case err.Code == "LL002", strings.HasPrefix(err.Code, "22"), strings.HasPrefix(err.Code, "23"):
		return engine.ErrInvalid
	case err.Code == "42501":
		return fmt.Errorf("%w: grant the role EXECUTE on the function", engine.ErrForbidden)
	case strings.HasPrefix(err.Code, "28"):
		return fmt.Errorf("%w: the database does not accept the role or its password", engine.ErrForbidden)
	case err.Code == "3D000":
		return fmt.Errorf("%w: create the database, or name another one", engine.ErrInvalid)
	case err.Code == "42883", err.Code == "42P01", err.Code == "3F000":
		return fmt.Errorf("%w: the functions are not in the search path of the database; run 'leased postgres ddl' there",
			engine.ErrInvalid)
	case disconnects(err):
		return engine.ErrUncertain
	}
	return engine.ErrUnavailable
}

// disconnects reports whether an error ends the connection, perhaps after the commit. A pooler reports the loss of its
// own connection with class 08.
func disconnects(err *pgconn.PgError) bool {
	return strings.HasPrefix(err.Code, "57P") || strings.HasPrefix(err.Code, "08") ||
		slices.Contains([]string{"FATAL", "PANIC"}, severity(err))
}

func severity(err *pgconn.PgError) string { return cmp.Or(err.SeverityUnlocalized, err.Severity) }
