package gooselock

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/storagegate/sqlgate"
)

// Locker takes a lease for the time of a call of goose, such as Provider.Up, and
// fences its session. Use it together with its Store; Options returns both. It serves
// one provider at a time: another one that shares it waits.
type Locker struct {
	locks    *lease.Client
	gate     *sqlgate.Gate
	resource fencing.Resource
	options  []lease.AcquireOption
	prefix   string // of the application_name of the sessions of all migrators

	turn     chan struct{} // holds a value while a session is locked
	held     *lease.Lease  // nil if no session is locked
	formerly string        // the application_name to restore
}

var _ lock.SessionLocker = (*Locker)(nil)

// New returns a Locker that takes the lease on resource. The gate is over the database
// that is migrated; its schema must be installed (sqlgate.Gate.Install, or `leased gate
// ddl --dialect postgres`). The options apply to every acquire.
func New(locks *lease.Client, gate *sqlgate.Gate, resource fencing.Resource, options ...lease.AcquireOption) (*Locker,
	error) {
	if locks == nil || gate == nil {
		return nil, errors.New("create a locker for goose: the client or the gate is nil")
	}
	if err := resource.Validate(); err != nil {
		return nil, err
	}
	// PostgreSQL cuts the name of an application after 63 bytes.
	return &Locker{locks: locks, gate: gate, resource: resource, options: options, turn: make(chan struct{}, 1),
		prefix: fmt.Sprintf("leased-goose-%x-", sha256.Sum256([]byte(resource)))[:40] + "-"}, nil
}

// Options returns what goose.NewProvider needs: the Locker and its Store, for the table
// of versions with this name ("" for the default). The dialect is goose.DialectCustom.
func (l *Locker) Options(table string) ([]goose.ProviderOption, error) {
	store, err := l.Store(table)
	if err != nil {
		return nil, err
	}
	return []goose.ProviderOption{goose.WithSessionLocker(l), goose.WithStore(store)}, nil
}

// SessionLock acquires the lease, raises the mark in the session of conn, and
// terminates the sessions of earlier migrators with the same role. It waits for the
// lock until ctx ends.
//
// The session gets its name before the mark is checked, and the next migrator raises
// the mark before it looks for names. So either the next one finds this session, or
// this one is refused.
func (l *Locker) SessionLock(ctx context.Context, conn *sql.Conn) (err error) {
	select {
	case l.turn <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.SessionUnlock(context.WithoutCancel(ctx), conn))
		}
	}()
	held, err := l.locks.Acquire(ctx, l.resource, l.options...)
	if err != nil {
		return err
	}
	if err := conn.QueryRowContext(ctx, `SELECT current_setting('application_name')`).Scan(&l.formerly); err != nil {
		return errors.Join(err, held.Release(ctx))
	}
	l.held = held
	if err := rename(ctx, conn, l.prefix+held.Token().String()); err != nil {
		return err
	}
	tx, err := conn.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return fmt.Errorf("raise the mark of %q: %w", string(l.resource), err)
	}
	defer func() { _ = tx.Rollback() }() // no effect after a commit
	if err := l.gate.Admit(ctx, tx, l.resource, held.Token()); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("raise the mark of %q: %w", string(l.resource), err)
	}
	_, err = conn.ExecContext(ctx, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
		WHERE datname = current_database() AND usename = current_user AND pid <> pg_backend_pid()
		AND CASE WHEN starts_with(application_name, $1::text)
			THEN substr(application_name, length($1::text) + 1)::bigint < $2::bigint END`, l.prefix, int64(held.Token()))
	if err != nil {
		return fmt.Errorf("terminate the sessions of earlier migrators of %q: %w", string(l.resource), err)
	}
	return nil
}

// SessionUnlock gives the session its former name and releases the lease.
func (l *Locker) SessionUnlock(ctx context.Context, conn *sql.Conn) error {
	defer func() { <-l.turn }()
	if l.held == nil {
		return nil
	}
	held := l.held
	l.held = nil
	return errors.Join(rename(ctx, conn, l.formerly), held.Release(ctx))
}

func rename(ctx context.Context, conn *sql.Conn, name string) error {
	if _, err := conn.ExecContext(ctx, `SELECT set_config('application_name', $1, false)`, name); err != nil {
		return fmt.Errorf("name the session of the migrator: %w", err)
	}
	return nil
}
