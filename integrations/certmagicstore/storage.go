package certmagicstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"

	"github.com/caddyserver/certmagic"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/storagegate/sqlgate"
)

// Storage is a certmagic.Storage in a PostgreSQL database. Its locks are leases, and
// their tokens fence Store and Delete. Every server of the cluster has a Storage with the
// same database and the same prefix.
type Storage struct {
	locks   *lease.Client
	db      *sql.DB
	gate    *sqlgate.Gate
	prefix  string
	options []lease.AcquireOption

	mu   sync.Mutex
	held map[string]*lock
}

var (
	_ certmagic.Storage          = (*Storage)(nil)
	_ certmagic.TryLocker        = (*Storage)(nil)
	_ certmagic.LockLeaseRenewer = (*Storage)(nil)
)

// New returns a Storage. The name of a lease is the prefix followed by certmagic's name
// of the lock. The options apply to every acquire. Call Install once for the database.
func New(locks *lease.Client, db *sql.DB, prefix string, options ...lease.AcquireOption) (*Storage, error) {
	if locks == nil || db == nil {
		return nil, errors.New("create a storage for certmagic: the client or the database is nil")
	}
	gate, err := sqlgate.New(db, sqlgate.Postgres, fencing.Rule{}, sqlgate.WithIsolation(sql.LevelReadCommitted))
	if err != nil {
		return nil, err
	}
	return &Storage{locks: locks, db: db, gate: gate, prefix: prefix, options: options, held: map[string]*lock{}}, nil
}

// Gate returns the gate of Store and Delete, for its counts and its audit.
func (s *Storage) Gate() *sqlgate.Gate { return s.gate }

// The keys are in byte order, so that the keys below a directory are a range of the index.
const schema = `CREATE TABLE IF NOT EXISTS leased_certmagic (
	key text COLLATE "C" PRIMARY KEY,
	value bytea NOT NULL,
	modified timestamptz NOT NULL
)`

// Install creates the table of the keys and those of the gate if they are missing. It can
// run at every start of a program.
func (s *Storage) Install(ctx context.Context) error {
	if err := s.gate.Install(ctx); err != nil {
		return err
	}
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("install the table of certmagic: %w", err)
	}
	defer func() { _ = tx.Rollback() }() // no effect after a commit
	for _, statement := range []string{`SELECT pg_advisory_xact_lock(hashtext('leased_certmagic'))`, schema} {
		if _, err := tx.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("install the table of certmagic: %w", err)
		}
	}
	return tx.Commit()
}

// Store sets the value of a key. It returns an error that matches fencing.ErrStale if
// another server has taken over a lock that guards the key.
func (s *Storage) Store(ctx context.Context, key string, value []byte) error {
	if key == "" || strings.Trim(key, "/") != key {
		return fmt.Errorf("store %q: a key is not empty and has no slash at its ends", key)
	}
	err := s.write(ctx, key, `INSERT INTO leased_certmagic (key, value, modified)
		VALUES ($1, coalesce($2::bytea, ''), now())
		ON CONFLICT (key) DO UPDATE SET value = excluded.value, modified = excluded.modified`, key, value)
	return explain("store", key, err)
}

// Delete deletes a key and all keys below it. It is refused like Store: certmagic deletes
// what it has stored before a refused Store, and that may be the work of another server.
func (s *Storage) Delete(ctx context.Context, key string) error {
	from, to := below(key)
	err := s.write(ctx, key, `DELETE FROM leased_certmagic WHERE key = $1 OR key > $2 AND key < $3`, key, from, to)
	return explain("delete", key, err)
}

// write executes a statement in a transaction that admits the tokens of the locks that
// guard the key. The leases are not asked whether they are still held: the gate decides.
func (s *Storage) write(ctx context.Context, key, statement string, args ...any) error {
	leases := s.guards(key)
	if len(leases) == 0 {
		_, err := s.db.ExecContext(ctx, statement, args...)
		return err
	}
	return s.gate.Do(ctx, leases[0].GateResource(), leases[0].Token(), func(tx *sql.Tx) error {
		for _, l := range leases[1:] {
			if err := s.gate.Admit(ctx, tx, l.GateResource(), l.Token()); err != nil {
				return err
			}
		}
		_, err := tx.ExecContext(ctx, statement, args...)
		return err
	})
}

// Load returns the value of a key.
func (s *Storage) Load(ctx context.Context, key string) (value []byte, err error) {
	err = s.db.QueryRowContext(ctx, `SELECT value FROM leased_certmagic WHERE key = $1`, key).Scan(&value)
	return value, explain("load", key, err)
}

// Exists reports whether there is a value at the key or below it.
func (s *Storage) Exists(ctx context.Context, key string) bool {
	_, err := s.Stat(ctx, key)
	return err == nil
}

// Stat describes a key, or a directory: a key with keys below it.
func (s *Storage) Stat(ctx context.Context, key string) (certmagic.KeyInfo, error) {
	info := certmagic.KeyInfo{Key: key, IsTerminal: true}
	err := s.db.QueryRowContext(ctx, `SELECT octet_length(value), modified FROM leased_certmagic WHERE key = $1`, key).
		Scan(&info.Size, &info.Modified)
	if !errors.Is(err, sql.ErrNoRows) {
		return info, explain("stat", key, err)
	}
	from, to := below(key)
	err = s.db.QueryRowContext(ctx, `SELECT max(modified) FROM leased_certmagic WHERE key > $1 AND key < $2
		HAVING count(*) > 0`, from, to).Scan(&info.Modified)
	info.IsTerminal = false
	return info, explain("stat", key, err)
}

// List returns the keys and directories in a directory. If recursive, also those below it.
func (s *Storage) List(ctx context.Context, dir string, recursive bool) ([]string, error) {
	from, to := below(dir)
	rows, err := s.db.QueryContext(ctx, `SELECT key FROM leased_certmagic WHERE key > $1 AND key < $2`, from, to)
	if err != nil {
		return nil, explain("list", dir, err)
	}
	defer rows.Close()
	var found []string
	for rows.Next() {
		var key string
		if err := rows.Scan(&key); err != nil {
			return nil, explain("list", dir, err)
		}
		for end := range len(key) {
			if end > len(from) && key[end] == '/' {
				found = append(found, key[:end])
				if !recursive {
					break
				}
			}
		}
		if recursive || !strings.Contains(key[len(from):], "/") {
			found = append(found, key)
		}
	}
	if err := rows.Err(); err != nil {
		return nil, explain("list", dir, err)
	}
	if len(found) == 0 { // a key that is not a directory, or nothing
		_, err := s.Stat(ctx, dir)
		return nil, err
	}
	slices.Sort(found)
	return slices.Compact(found), nil
}

// below returns the bounds of the keys below a directory, "" for all keys. Both bounds
// are exclusive. In byte order, 0 follows the slash.
func below(dir string) (from, to string) {
	if dir == "" {
		return "", "\U0010FFFF"
	}
	return dir + "/", dir + "0"
}

// explain adds the operation to an error, and turns a missing row into fs.ErrNotExist.
func explain(operation, key string, err error) error {
	if errors.Is(err, sql.ErrNoRows) {
		err = fs.ErrNotExist
	}
	var postgres interface{ SQLState() string }
	if errors.As(err, &postgres) && postgres.SQLState() == "42P01" {
		return fmt.Errorf("%s %q: a table is missing; call Install once for the database: %w", operation, key, err)
	}
	if err != nil {
		return fmt.Errorf("%s %q: %w", operation, key, err)
	}
	return nil
}
