package postgres

import (
	"context"
	"errors"
	"hash/fnv"

	"github.com/jackc/pgx/v5"

	"github.com/leased-project/leased/internal/load"
)

// advisory takes session-level advisory locks. Each client has a connection, whose loss
// frees its locks.
type advisory struct{ dsn string }

// Name implements [load.Target].
func (advisory) Name() string { return "postgres-advisory" }

// Open implements [load.Target].
func (t advisory) Open(ctx context.Context) (load.Client, error) {
	conn, err := pgx.Connect(ctx, t.dsn)
	if err != nil {
		return nil, err
	}
	return &session{conn}, nil
}

// session is a connection. Only one worker may use it, since a waiting acquisition blocks
// the connection, and a session may hold a lock twice.
type session struct{ conn *pgx.Conn }

// Acquire implements [load.Client]. The statement is prepared once for each connection.
func (s *session) Acquire(ctx context.Context, name string) (load.Held, error) {
	key := keyOf(name)
	if _, err := s.conn.Exec(ctx, "SELECT pg_advisory_lock($1)", key); err != nil {
		return nil, err
	}
	return advisoryLock{s.conn, key}, nil
}

// keyOf returns the number of a lock: PostgreSQL identifies advisory locks by numbers.
func keyOf(name string) int64 {
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(name)) // never fails
	return int64(hash.Sum64())
}

// Close implements [load.Client].
func (s *session) Close(ctx context.Context) error { return s.conn.Close(ctx) }

type advisoryLock struct {
	conn *pgx.Conn
	key  int64
}

// Token returns 0: advisory locks have no fencing tokens.
func (l advisoryLock) Token() uint64 { return 0 }

// Release implements [load.Held].
func (l advisoryLock) Release(ctx context.Context) error {
	var held bool
	if err := l.conn.QueryRow(ctx, "SELECT pg_advisory_unlock($1)", l.key).Scan(&held); err != nil {
		return err
	}
	if !held {
		return errors.New("release an advisory lock: the session does not hold it")
	}
	return nil
}
