package gooselock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"
)

// Store is goose's table of versions. It records a version only in a transaction that
// admits the token of the Locker's lease: the one of the migration, if it has one.
type Store struct {
	database.StoreExtender
	locker *Locker
}

// Store returns the Store for the table of versions with this name, "" for the default.
func (l *Locker) Store(table string) (*Store, error) {
	if table == "" {
		table = goose.DefaultTablename
	}
	inner, err := database.NewStore(goose.DialectPostgres, table)
	if err != nil {
		return nil, err
	}
	extended, ok := inner.(database.StoreExtender)
	if !ok {
		return nil, fmt.Errorf("this release of goose has no extended store for PostgreSQL: %w", errors.ErrUnsupported)
	}
	return &Store{StoreExtender: extended, locker: l}, nil
}

// Insert records that a migration was applied. Goose records version 0 when it creates
// the table, also in calls that do not lock, so that needs no token.
func (s *Store) Insert(ctx context.Context, db database.DBTxConn, request database.InsertRequest) error {
	if request.Version == 0 {
		return s.StoreExtender.Insert(ctx, db, request)
	}
	return s.fenced(ctx, db, func(tx database.DBTxConn) error { return s.StoreExtender.Insert(ctx, tx, request) })
}

// Delete records that a migration was undone.
func (s *Store) Delete(ctx context.Context, db database.DBTxConn, version int64) error {
	return s.fenced(ctx, db, func(tx database.DBTxConn) error { return s.StoreExtender.Delete(ctx, tx, version) })
}

// fenced runs write after the token was admitted, in the migration's transaction or in
// one of its own.
func (s *Store) fenced(ctx context.Context, db database.DBTxConn, write func(database.DBTxConn) error) error {
	if own, ok := db.(interface {
		BeginTx(ctx context.Context, options *sql.TxOptions) (*sql.Tx, error)
	}); ok {
		tx, err := own.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }() // no effect after a commit
		if err := s.fenced(ctx, tx, write); err != nil {
			return err
		}
		return tx.Commit()
	}
	tx, ok := db.(*sql.Tx)
	if !ok {
		return fmt.Errorf("record a version: goose passed a %T, which has no transactions", db)
	}
	held := s.locker.held
	if held == nil {
		return ErrNotLocked
	}
	// The lease is not asked whether it is still held: the gate decides.
	if err := s.locker.gate.Admit(ctx, tx, s.locker.resource, held.Token()); err != nil {
		return err
	}
	return write(tx)
}
