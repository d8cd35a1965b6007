// Command guardedwrite shows why a lock alone does not protect data, and what
// does: a holder is paused, its lease passes on, and it wakes up and writes.
//
// The lock service here is in the memory of this program, and a pause is a
// holder that does nothing for a while, as a process stopped by its garbage
// collector or its hypervisor would.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/lease/memory"
	"github.com/leased-project/leased/storagegate/memgate"
)

const account fencing.Resource = "account/7"

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "guardedwrite:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer) error {
	fmt.Fprintln(out, "A lock and no gate")
	if err := story(ctx, out, &plain{balance: 100}); err != nil {
		return err
	}
	fmt.Fprintln(out, "\nThe same lock, and a gate that checks the token")
	gate := memgate.New[int](fencing.Rule{})
	if err := gate.Do(ctx, account, fencing.None, func(balance *int) error { *balance = 100; return nil }); err != nil {
		return err
	}
	return story(ctx, out, &gated{gate: gate})
}

// store is where the balance is kept.
type store interface {
	read(ctx context.Context, token fencing.Token) (int, error)
	write(ctx context.Context, token fencing.Token, balance int) error
}

// story lets Alice be paused between her read and her write.
func story(ctx context.Context, out io.Writer, s store) error {
	service, err := memory.New()
	if err != nil {
		return err
	}
	alice, err := lease.New(service, lease.WithName("alice"))
	if err != nil {
		return err
	}
	defer alice.Close(ctx)
	bob, err := lease.New(service, lease.WithName("bob"))
	if err != nil {
		return err
	}
	defer bob.Close(ctx)

	// A paused process renews nothing.
	hers, err := alice.Acquire(ctx, account, lease.WithTTL(300*time.Millisecond), lease.WithoutRenewal())
	if err != nil {
		return err
	}
	balance, err := s.read(ctx, hers.Token())
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "  alice  has the lock, token %d; reads %d, wants to take 30\n", hers.Token(), balance)
	fmt.Fprintf(out, "  alice  is paused; her lease runs out\n")

	his, err := bob.Acquire(ctx, account) // waits until her lease has passed on
	if err != nil {
		return err
	}
	if err := deposit(ctx, out, s, his); err != nil {
		return err
	}

	fmt.Fprintf(out, "  alice  wakes up and writes %d with token %d\n", balance-30, hers.Token())
	err = s.write(ctx, hers.Token(), balance-30)
	switch {
	case errors.Is(err, fencing.ErrStale):
		fmt.Fprintf(out, "  store  refuses: %v\n", err)
	case err != nil:
		return err
	}
	final, err := s.read(ctx, his.Token())
	if err != nil {
		return err
	}
	verdict := "nothing is lost"
	if final != 150 {
		verdict = "bob's 50 are lost"
	}
	fmt.Fprintf(out, "  store  holds %d: %s\n", final, verdict)
	return nil
}

func deposit(ctx context.Context, out io.Writer, s store, his *lease.Lease) error {
	balance, err := s.read(ctx, his.Token())
	if err != nil {
		return err
	}
	if err := s.write(ctx, his.Token(), balance+50); err != nil {
		return err
	}
	fmt.Fprintf(out, "  bob    has the lock, token %d; reads %d, writes %d\n", his.Token(), balance, balance+50)
	return nil
}

// plain takes whatever comes.
type plain struct{ balance int }

func (p *plain) read(context.Context, fencing.Token) (int, error) { return p.balance, nil }

func (p *plain) write(_ context.Context, _ fencing.Token, balance int) error {
	p.balance = balance
	return nil
}

// gated checks every token. Whoever is going to write enters before reading.
type gated struct{ gate *memgate.Gate[int] }

func (g *gated) read(ctx context.Context, token fencing.Token) (int, error) {
	if err := g.gate.Enter(ctx, account, token); err != nil {
		return 0, err
	}
	balance, _, err := g.gate.Get(ctx, account)
	return balance, err
}

func (g *gated) write(ctx context.Context, token fencing.Token, balance int) error {
	return g.gate.Do(ctx, account, token, func(stored *int) error { *stored = balance; return nil })
}
