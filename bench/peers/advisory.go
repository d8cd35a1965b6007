package peers

import (
	"context"
	"errors"
	"hash/fnv"

	"github.com/jackc/pgx/v5"

	"github.com/leased-project/leased/internal/load"
)

// openAdvisory opens clients that take session-level advisory locks. Each has a connection, whose loss frees its locks.
func openAdvisory(endpoints []string) load.Target {
	return func(ctx context.Context) (load.Client, error) {
		conn, err := pgx.Connect(ctx, endpoints[0])
		if err != nil {
			return nil, err
		}
		return &session{conn}, nil
	}
}

// session is a connection. Only one worker may use it, since a waiting acquisition blocks
// the connection, and a session may hold a lock twice.
type session struct{ conn *pgx.Conn }

// Acquire implements [load.Client]. The statement is prepared once for each connection.
func (s *session) Acquire(ctx context.Context, name string) (load.Held, error) {
	key := keyOf(name)
	if _, err := s.conn.Exec(ctx, "SELECT pg_advisory_lock($1)", key); err != nil {
		return load.Held{}, err
	}
	return load.Held{Release: func(ctx context.Context) error { // advisory locks have no fencing tokens
		var held bool
		err := s.conn.QueryRow(ctx, "SELECT pg_advisory_unlock($1)", key).Scan(&held)
		if err == nil && !held {
			err = errors.New("release an advisory lock: the session does not hold it")
		}
		return err
	}}, nil
}

// keyOf returns the number of a lock: PostgreSQL identifies advisory locks by numbers.
func keyOf(name string) int64 {
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(name)) // never fails
	return int64(hash.Sum64())
}

// Close implements [load.Client].
func (s *session) Close(ctx context.Context) error { return s.conn.Close(ctx) }
