//go:build linux

package torture

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/proptest/property"
	"github.com/leased-project/leased/storagegate/sqlgate/pgxgate"
)

// Write is one change of a guarded register, based on version Seen.
type Write struct {
	Op            uint64
	Resource      fencing.Resource
	Token         fencing.Token
	Seen, Version uint64
}

// Storage is the storage of the workers: registers behind a gate. An error that matches
// fencing.ErrStale is a refusal; any other error leaves the outcome unknown.
type Storage interface {
	Enter(ctx context.Context, resource fencing.Resource, token fencing.Token) error
	// Read needs no token.
	Read(ctx context.Context, resource fencing.Resource) (version uint64, err error)
	// Write sets the register unconditionally and logs it.
	Write(ctx context.Context, w Write) error
}

// The registers and the log. Rows of one resource are numbered in the order in which they
// take effect: a transaction that takes a number holds the row lock of the mark or of the
// register until it commits. The trigger logs every change of a mark, independently of the
// gate.
const schema = `
CREATE TABLE torture_register (resource text PRIMARY KEY, version bigint NOT NULL);
CREATE TABLE torture_log (seq bigserial PRIMARY KEY, at timestamptz NOT NULL DEFAULT clock_timestamp(),
	resource text NOT NULL, op bigint NOT NULL DEFAULT 0, token bigint NOT NULL,
	seen bigint NOT NULL DEFAULT 0, version bigint NOT NULL DEFAULT 0);
CREATE INDEX ON torture_log (resource text_pattern_ops, seq);
CREATE FUNCTION torture_marked() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO torture_log (resource, token) VALUES (NEW.resource, NEW.mark);
	RETURN NULL;
END $$;
CREATE TRIGGER torture_marked AFTER INSERT OR UPDATE ON leased_marks FOR EACH ROW EXECUTE FUNCTION torture_marked();
`

const (
	setRegister = `INSERT INTO torture_register (resource, version) VALUES ($1, $2)
		ON CONFLICT (resource) DO UPDATE SET version = $2`
	noteWrite = `INSERT INTO torture_log (resource, op, token, seen, version) VALUES ($1, $2, $3, $4, $5)`
)

func (w Write) noted() []any {
	return []any{string(w.Resource), int64(w.Op), int64(w.Token), int64(w.Seen), int64(w.Version)}
}

// database is a Storage in PostgreSQL, behind a gate.
type database struct {
	pool *pgxpool.Pool
	gate *pgxgate.Gate
}

var _ Storage = (*database)(nil)

// openDatabase connects to a PostgreSQL.
func openDatabase(ctx context.Context, dsn string) (*database, error) {
	pool, err := pgxpool.New(ctx, dsn+"&pool_max_conns=3")
	if err != nil {
		return nil, fmt.Errorf("open the storage: %w", err)
	}
	return &database{pool: pool, gate: pgxgate.New(pool, fencing.Rule{})}, nil
}

func (d *database) install(ctx context.Context) error {
	if err := d.gate.Install(ctx); err != nil {
		return err
	}
	if _, err := d.pool.Exec(ctx, schema); err != nil {
		return fmt.Errorf("create the registers: %w", err)
	}
	return nil
}

// Enter implements Storage.
func (d *database) Enter(ctx context.Context, resource fencing.Resource, token fencing.Token) error {
	return d.gate.Enter(ctx, resource, token)
}

// Read implements Storage.
func (d *database) Read(ctx context.Context, resource fencing.Resource) (version uint64, err error) {
	err = d.pool.QueryRow(ctx, `SELECT coalesce((SELECT version FROM torture_register WHERE resource = $1), 0)`,
		string(resource)).Scan(&version)
	return version, err
}

// Write implements Storage, with one of the two methods of the gate.
func (d *database) Write(ctx context.Context, w Write) error {
	if rand.IntN(2) == 0 {
		return d.gate.Batch(ctx, w.Resource, w.Token, func(b *pgx.Batch) {
			b.Queue(setRegister, string(w.Resource), int64(w.Version))
			b.Queue(noteWrite, w.noted()...)
		})
	}
	return d.gate.Do(ctx, w.Resource, w.Token, func(tx pgxgate.Tx) error { return write(ctx, tx, w) })
}

// write sets the register and logs it.
func write(ctx context.Context, tx pgxgate.Tx, w Write) error {
	if _, err := tx.Exec(ctx, setRegister, string(w.Resource), int64(w.Version)); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, noteWrite, w.noted()...)
	return err
}

// log returns the log of the resources with a prefix, after row number after, and the
// number of the last row. offset converts the storage's times to those of the events.
func (d *database) log(ctx context.Context, prefix string, after int64, offset time.Duration) (events []property.Event,
	last int64, err error) {
	rows, err := d.pool.Query(ctx, `
		SELECT seq, (extract(epoch FROM at) * 1000000)::bigint, resource, op, token, seen, version
		FROM torture_log WHERE resource LIKE $1 || '%' AND seq > $2 ORDER BY seq`, prefix, after)
	if err != nil {
		return nil, 0, fmt.Errorf("read the log of the storage: %w", err)
	}
	defer rows.Close()
	last = after
	for rows.Next() {
		e := property.Event{Kind: property.Entered, Who: storageName}
		var micros int64
		if err := rows.Scan(&last, &micros, &e.Resource, &e.Op, &e.Token, &e.Seen, &e.Version); err != nil {
			return nil, 0, fmt.Errorf("read the log of the storage: %w", err)
		}
		if e.Op != 0 {
			e.Kind = property.Wrote
		}
		e.At = time.Duration(micros)*time.Microsecond - offset
		events = append(events, e)
	}
	return events, last, rows.Err()
}

// found returns the contents of the registers.
func (d *database) found(ctx context.Context, prefix string) (events []property.Event, err error) {
	rows, err := d.pool.Query(ctx, `
		SELECT resource, version FROM torture_register WHERE resource LIKE $1 || '%' ORDER BY resource`, prefix)
	if err != nil {
		return nil, fmt.Errorf("read the registers: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		e := property.Event{Kind: property.Found, Who: storageName}
		if err := rows.Scan(&e.Resource, &e.Version); err != nil {
			return nil, fmt.Errorf("read the registers: %w", err)
		}
		events = append(events, e)
	}
	return events, rows.Err()
}

// answers reports whether the server accepts connections.
func (d *database) answers(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, storageLimit)
	defer cancel()
	return d.pool.Ping(ctx) == nil
}

// crash kills one backend process. PostgreSQL then assumes corrupt shared memory, ends all
// backends and recovers from its log on disk. gone reports whether the process has ended.
func (d *database) crash(ctx context.Context) (gone func() bool, err error) {
	conn, err := d.pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Release()
	defer conn.Conn().Close(context.Background())
	if err := conn.Ping(ctx); err != nil { // it is alive, so the process id is valid
		return nil, err
	}
	p, err := os.FindProcess(int(conn.Conn().PgConn().PID()))
	if err != nil {
		return nil, err
	}
	return func() bool { return p.Signal(syscall.Signal(0)) != nil }, p.Kill()
}

// storageName is the name of the storage in histories.
const storageName = "PostgreSQL"
