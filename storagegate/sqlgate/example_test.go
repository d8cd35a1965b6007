package sqlgate_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate/sqlgate"
)

func ExampleGate() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "sqlite")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir,
		"app.db")+"?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)")
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	gate, err := sqlgate.New(db, sqlgate.SQLite, fencing.Rule{})
	if err != nil {
		log.Fatal(err)
	}
	if err := gate.Install(ctx); err != nil { // once for the database
		log.Fatal(err)
	}
	if _, err := db.ExecContext(ctx,
		`CREATE TABLE accounts (id INTEGER PRIMARY KEY, balance INTEGER); INSERT INTO accounts VALUES (7, 100)`); err != nil {
		log.Fatal(err)
	}
	for _, token := range []fencing.Token{34, 33} { // the newer holder, then the paused one
		err := gate.Do(ctx, "account/7", token, func(tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, `UPDATE accounts SET balance = balance - 10 WHERE id = 7`)
			return err
		})
		fmt.Println(err)
	}
	var balance int
	fmt.Println(db.QueryRowContext(ctx, `SELECT balance FROM accounts`).Scan(&balance), balance)
	// Output:
	// <nil>
	// stale fencing token 33 for "account/7": 34 has been admitted; the lease is lost, stop writing
	// <nil> 90
}

// Guard returns triggers that also stop code without a gate.
func ExampleGuard() {
	text, err := sqlgate.Guard(sqlgate.Postgres, sqlgate.GuardedTable{Table: "accounts", Column: "id", Prefix: "account/"})
	fmt.Println(len(text) > 0, err)
	_, err = sqlgate.Guard(sqlgate.Postgres, sqlgate.GuardedTable{Table: "accounts; DROP TABLE accounts", Column: "id"})
	fmt.Println(err)
	// Output:
	// true <nil>
	// table cannot be guarded: "accounts; DROP TABLE accounts" is not a valid table or column name; use letters, digits and underscores, at most 40
}
