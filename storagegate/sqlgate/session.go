package sqlgate

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
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
	broken bool // the write may have ended the transaction and locked tables
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

// begin begins a transaction that does not end with ctx. Otherwise database/sql would
// roll it back, and verify could not find out whether the write has ended it before.
func (s *session) begin(ctx context.Context, options *sql.TxOptions) (*sql.Tx, error) {
	detached, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, cancel)
	defer stop()
	return s.conn.BeginTx(detached, options)
}

// protect sets the savepoint.
func (s *session) protect(ctx context.Context, tx *sql.Tx) error {
	if _, err := tx.ExecContext(ctx, `SAVEPOINT leased_gate`); err != nil {
		return fmt.Errorf("set the savepoint of the gated transaction: %w", err)
	}
	s.broken = true // until verify has found it
	return nil
}

// verify returns the error of the write, if any, or another one if the transaction is
// not the one of protect any more.
func (s *session) verify(ctx context.Context, tx *sql.Tx, failed error) error {
	if failed != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), restoreTimeout)
		defer cancel()
	}
	_, err := tx.ExecContext(ctx, `RELEASE SAVEPOINT leased_gate`)
	switch {
	case err == nil:
		s.broken = false
		return failed
	case mysqlNumber(err) == 1305 && !slices.Contains(rollbacksMySQL, mysqlNumber(failed)): // it does not exist
		ended := fmt.Errorf("%w, by DDL, LOCK TABLES, COMMIT, ROLLBACK, or a deadlock (1213) whose error the write did not "+
			"return: %w: "+
			"earlier statements may be committed, later ones are rolled back; "+
			"execute DDL outside the gate, and return the errors of statements from the write", ErrTransactionEnded,
			storagegate.ErrUncertain)
		return errors.Join(failed, ended)
	case failed != nil:
		return failed
	}
	return fmt.Errorf("check the gated transaction before its commit: %w", err)
}

// rollbacksMySQL are the errors after which the server has rolled back the transaction: a
// deadlock, and in MariaDB a row that changed after the snapshot.
var rollbacksMySQL = []uint64{1213, 1020}

// close restores autocommit and returns the connection to the pool. Enabling
// autocommit commits an open transaction, so close rolls back first: the rollback of
// database/sql may have failed.
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
