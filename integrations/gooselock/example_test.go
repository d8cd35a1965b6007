package gooselock_test

import (
	"context"
	"database/sql"
	"log"
	"os"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgx
	"github.com/pressly/goose/v3"

	"github.com/leased-project/leased/client"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/integrations/gooselock"
	"github.com/leased-project/leased/storagegate/sqlgate"
)

// Every host migrates the database when it starts; one of them does the work.
func Example() {
	ctx := context.Background()
	locks, err := client.Dial(ctx, []string{"127.0.0.1:7420"})
	if err != nil {
		log.Fatal(err)
	}
	db, err := sql.Open("pgx", "postgres://127.0.0.1/shop")
	if err != nil {
		log.Fatal(err)
	}
	gate, err := sqlgate.New(db, sqlgate.Postgres, fencing.Rule{})
	if err != nil {
		log.Fatal(err)
	}
	if err := gate.Install(ctx); err != nil { // once, as a user who may create tables
		log.Fatal(err)
	}
	locker, err := gooselock.New(locks, gate, "migrations/shop")
	if err != nil {
		log.Fatal(err)
	}
	options, err := locker.Options("")
	if err != nil {
		log.Fatal(err)
	}
	provider, err := goose.NewProvider(goose.DialectCustom, db, os.DirFS("migrations"), options...)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := provider.Up(ctx); err != nil {
		log.Fatal(err)
	}
}
