package postgres_test

import (
	"context"
	"fmt"
	"log"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/lease/postgres"
)

func Example() {
	server, err := shared.Start() // a PostgreSQL server for this example
	if err != nil {
		log.Fatal(err)
	}
	defer server.Stop()
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, server.DSN)
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	if _, err := pool.Exec(ctx, postgres.DDL()); err != nil {
		log.Fatal(err)
	}

	backend, err := postgres.New(ctx, pool, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer backend.Close()
	locks, err := lease.New(backend)
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close(ctx)
	err = locks.Do(ctx, "account/7", func(_ context.Context, l *lease.Lease) error {
		fmt.Println("token", l.Token()) // pass it to a gate with every write
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output: token 1
}
