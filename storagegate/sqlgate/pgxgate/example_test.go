package pgxgate_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate/sqlgate/pgxgate"
)

// exampleTB lets an example use the shared server of the tests.
type exampleTB struct{ testing.TB }

func (exampleTB) Helper()           {}
func (exampleTB) Fatal(args ...any) { log.Fatal(args...) }

// withdraw enters before it reads, and its write carries the token of the lease.
func withdraw(ctx context.Context, pool *pgxpool.Pool, gate *pgxgate.Gate, token fencing.Token, amount int,
	pause func()) error {
	if err := gate.Enter(ctx, "account/7", token); err != nil {
		return err
	}
	var balance int
	if err := pool.QueryRow(ctx, `SELECT balance FROM example_accounts WHERE id = 7`).Scan(&balance); err != nil {
		return err
	}
	pause() // a garbage collection, a suspended machine, a slow network
	return gate.Do(ctx, "account/7", token, func(tx pgxgate.Tx) error {
		_, err := tx.Exec(ctx, `UPDATE example_accounts SET balance = $1 WHERE id = 7`, balance-amount)
		return err
	})
}

// Two holders withdraw from one account. The first holder is paused between its
// read and its write, and loses its lease to the second. When it resumes,
// PostgreSQL refuses its write, which would overwrite that of the second holder.
func ExampleGate() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, postgres.Get(exampleTB{}).DSN) // the address of your database
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	gate := pgxgate.New(pool, fencing.Rule{})
	if err := gate.Install(ctx); err != nil { // once for the database
		log.Fatal(err)
	}
	_, err = pool.Exec(ctx, `CREATE TABLE example_accounts (id int PRIMARY KEY, balance int);
		INSERT INTO example_accounts VALUES (7, 100)`)
	if err != nil {
		log.Fatal(err)
	}
	err = withdraw(ctx, pool, gate, 33, 10, func() {
		fmt.Println("second holder:", withdraw(ctx, pool, gate, 34, 20, func() {}))
	})
	fmt.Println("first holder:", err)
	fmt.Println("stop and acquire again:", errors.Is(err, fencing.ErrStale))
	var balance int
	err = pool.QueryRow(ctx, `SELECT balance FROM example_accounts`).Scan(&balance)
	fmt.Println("balance:", balance, err)
	// Output:
	// second holder: <nil>
	// first holder: stale fencing token 33 for "account/7": 34 has been admitted; the lease is lost, stop writing
	// stop and acquire again: true
	// balance: 80 <nil>
}
