package sqlgate

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"time"

	"github.com/leased-project/leased/storagegate"
)

// restoreTimeout limits the reset of a connection. It replaces the caller's
// context, which may have ended.
const restoreTimeout = 5 * time.Second

// session is a connection to MariaDB or MySQL for one gated transaction. These
// databases end transactions implicitly: DDL and LOCK TABLES commit, a deadlock
// rolls back. With autocommit, later statements of the write would be committed
// without a lock on the mark. So the session disables autocommit, and sets a
// savepoint that must exist at the end if the transaction is still the one that
// was admitted.
type session struct {
	conn   *sql.Conn
	broken bool // tables may be locked in the connection
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

// protect sets the savepoint.
func (s *session) protect(ctx context.Context, tx *sql.Tx) error {
	if _, err := tx.ExecContext(ctx, `SAVEPOINT leased_gate`); err != nil {
		return fmt.Errorf("set the savepoint of the gated transaction: %w", err)
	}
	return nil
}

// verify returns an error if the transaction is not the one of protect any more.
func (s *session) verify(ctx context.Context, tx *sql.Tx) error {
	_, err := tx.ExecContext(ctx, `RELEASE SAVEPOINT leased_gate`)
	if mysqlNumber(err) == 1305 { // the savepoint does not exist
		s.broken = true
		return fmt.Errorf("%w, by DDL, LOCK TABLES, COMMIT, ROLLBACK, or a deadlock (1213) whose error the write did not "+
			"return: %w: "+
			"earlier statements may be committed, later ones are rolled back; "+
			"execute DDL outside the gate, and return the errors of statements from the write", ErrTransactionEnded,
			storagegate.ErrUncertain)
	}
	if err != nil {
		return fmt.Errorf("check the gated transaction before its commit: %w", err)
	}
	return nil
}

// close restores autocommit and returns the connection to the pool. Enabling
// autocommit commits an open transaction, so close rolls back first: after a
// context has ended, the rollback of database/sql may still be pending.
func (s *session) close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), restoreTimeout)
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

// discard closes the connection instead of returning it to the pool.
func (s *session) discard() {
	_ = s.conn.Raw(func(any) error { return driver.ErrBadConn })
	_ = s.conn.Close()
}

// unchecked replaces protect and verify for databases that do not end transactions
// implicitly.
func unchecked(context.Context, *sql.Tx) error { return nil }
