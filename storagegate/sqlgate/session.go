package sqlgate

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"time"

	"github.com/leased-project/leased/storagegate"
)

// restoreLimit is how long it may take to give a connection back as it was. The
// caller's context does not count: it may be over.
const restoreLimit = 5 * time.Second

// session is a connection to MariaDB or MySQL for one gated transaction. These
// end a transaction without being asked: DDL and LOCK TABLES commit it, a
// deadlock rolls it back. With autocommit, what the write does next would be
// committed at once, with nobody holding the mark. So autocommit is off, and a
// savepoint that must still be there at the end tells whether the transaction
// is the one that was admitted.
type session struct {
	conn   *sql.Conn
	broken bool // tables may be locked in it
}

func openSession(ctx context.Context, db *sql.DB) (*session, error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	s := &session{conn: conn}
	if _, err := conn.ExecContext(ctx, `SET @leased_autocommit = @@autocommit, autocommit = 0`); err != nil {
		s.discard()
		return nil, err
	}
	return s, nil
}

// enclose begins what has to stay in one transaction.
func (s *session) enclose(ctx context.Context, tx *sql.Tx) error {
	if _, err := tx.ExecContext(ctx, `SAVEPOINT leased_gate`); err != nil {
		return fmt.Errorf("set the savepoint of the gated transaction: %w", err)
	}
	return nil
}

// intact reports an error if the transaction is not the one of enclose.
func (s *session) intact(ctx context.Context, tx *sql.Tx) error {
	_, err := tx.ExecContext(ctx, `RELEASE SAVEPOINT leased_gate`)
	if mysqlNumber(err) == 1305 { // there is no such savepoint
		s.broken = true
		return fmt.Errorf("%w, by DDL, LOCK TABLES, COMMIT, ROLLBACK, or a deadlock (1213) whose error the write did not return: %w: "+
			"what came before that may be committed, what came after is rolled back; "+
			"run DDL outside of the gate, and let the write return the errors of its statements", ErrTransactionEnded, storagegate.ErrUncertain)
	}
	if err != nil {
		return fmt.Errorf("check the gated transaction before its commit: %w", err)
	}
	return nil
}

// close gives the connection back with the autocommit it had. To switch it on
// commits what is open, so roll back first: database/sql may still be about to
// do that itself, in the background, after the end of a context.
func (s *session) close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), restoreLimit)
	defer cancel()
	if s.broken {
		s.discard()
		return
	}
	for _, statement := range []string{`ROLLBACK`, `SET autocommit = @leased_autocommit`} {
		if _, err := s.conn.ExecContext(ctx, statement); err != nil {
			s.discard()
			return
		}
	}
	_ = s.conn.Close()
}

// discard closes the connection for good: nobody may get it in this state.
func (s *session) discard() {
	_ = s.conn.Raw(func(any) error { return driver.ErrBadConn })
	_ = s.conn.Close()
}

// unchecked stands for enclose and intact where a transaction ends only when it
// is told to.
func unchecked(context.Context, *sql.Tx) error { return nil }
