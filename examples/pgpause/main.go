//go:build unix

// Command pgpause shows why a lock needs a gate.
//
//	go run ./examples/pgpause
//
// It starts a PostgreSQL of its own and two real processes that change one
// account under a lock with a lease. One of them is stopped with SIGSTOP while
// it holds the lock, until the lease has run out and the other one has written.
// Then it goes on with SIGCONT. Without a gate its write destroys the other's.
// With one it is refused.
//
// Read it in this order: main.go, the stage; holder.go, what the two processes
// do; lock.go, the lock with its lease.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/storagegate/sqlgate/pgxgate"
)

func main() {
	if isHolder() {
		actAsHolder()
		return
	}
	if err := show(context.Background(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "pgpause:", err)
		os.Exit(1)
	}
}

// show runs both scenes and prints them as timelines.
func show(ctx context.Context, out io.Writer) error {
	server, err := testserver.StartPostgres()
	if err != nil {
		return err
	}
	defer server.Stop()
	pool, err := pgxpool.New(ctx, server.DSN)
	if err != nil {
		return err
	}
	defer pool.Close()
	fmt.Fprintf(out, "PostgreSQL runs at %s. The account holds 100. Alice takes 30 out, Bob puts 50 in: 120 is right.\n", server.Addr)
	for _, s := range []struct {
		title string
		gated bool
		right int
	}{
		{"1. A lock, and no gate", false, 70},
		{"2. The same lock, and a gate", true, 120},
	} {
		balance, err := scene(ctx, pool, server.DSN, s.title, s.gated, out)
		if err != nil {
			return err
		}
		if balance != s.right {
			return fmt.Errorf("%s: the account holds %d, and this program expected %d", s.title, balance, s.right)
		}
	}
	return nil
}

// scene lets both holders play once, and returns the balance at the end.
func scene(ctx context.Context, pool *pgxpool.Pool, dsn, title string, gated bool, out io.Writer) (balance int, err error) {
	if err := setUp(ctx, pool); err != nil {
		return 0, err
	}
	fmt.Fprintf(out, "\n%s\n", title)
	line := &timeline{out: out, start: time.Now()}
	alice, err := start("alice", dsn, -30, gated, line)
	if err != nil {
		return 0, err
	}
	defer alice.end()
	if err := alice.until("read"); err != nil {
		return 0, err
	}
	if err := alice.stop(); err != nil {
		return 0, err
	}
	line.print("", "SIGSTOP: alice stands still, with the lock in her hand and the balance in her head")

	bob, err := start("bob", dsn, +50, gated, line)
	if err != nil {
		return 0, err
	}
	defer bob.end()
	if err := bob.until("done"); err != nil {
		return 0, err
	}

	line.print("", "SIGCONT: alice goes on, and does not know that time has passed")
	if err := alice.resume(); err != nil {
		return 0, err
	}
	if err := alice.until("done"); err != nil {
		return 0, err
	}
	if err := errors.Join(alice.wait(), bob.wait()); err != nil {
		return 0, err
	}
	if err := pool.QueryRow(ctx, `SELECT balance FROM accounts WHERE id = 7`).Scan(&balance); err != nil {
		return 0, err
	}
	switch balance {
	case 120:
		line.print("", "the account holds 120: both updates are there")
	case 70:
		line.print("", "the account holds 70: Bob's 50 are lost, and nobody was told")
	default:
		line.print("", fmt.Sprintf("the account holds %d", balance))
	}
	return balance, nil
}

// setUp makes the account, the lock and the gate.
func setUp(ctx context.Context, pool *pgxpool.Pool) error {
	if err := pgxgate.New(pool, fencing.Rule{}).Install(ctx); err != nil {
		return err
	}
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, lockTable+`
			DROP TABLE IF EXISTS accounts;
			CREATE TABLE accounts (id int PRIMARY KEY, balance int NOT NULL);
			INSERT INTO accounts VALUES (7, 100);`)
		return err
	})
}

// timeline prints what happens, and when.
type timeline struct {
	out   io.Writer
	start time.Time
}

func (l *timeline) print(who, what string) {
	fmt.Fprintf(l.out, "  %5.2fs  %-6s %s\n", time.Since(l.start).Seconds(), who, what)
}
