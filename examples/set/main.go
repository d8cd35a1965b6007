// Command set shows a lease on a set of resources, all or none, under one token: a
// transfer between two accounts. Transfers in both directions run at the same time and
// cannot deadlock, because a set waits for all of its resources together.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/raftstore/memory"
	"github.com/leased-project/leased/storagegate/memgate"
)

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "set:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	service, err := memory.New()
	if err != nil {
		return err
	}
	client, err := lease.New(service)
	if err != nil {
		return err
	}
	defer client.Close(ctx)

	accounts := memgate.New[int](fencing.Rule{})
	errs := make(chan error, 40)
	var wg sync.WaitGroup
	for i := range cap(errs) {
		from, to := fencing.Resource("account/a"), fencing.Resource("account/b")
		if i%2 == 1 {
			from, to = to, from
		}
		wg.Go(func() { errs <- transfer(ctx, client, accounts, from, to, i) })
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			return err
		}
	}
	a, _, err := accounts.Get(ctx, "account/a")
	if err != nil {
		return err
	}
	b, mark, err := accounts.Get(ctx, "account/b")
	if err != nil {
		return err
	}
	fmt.Printf("%d transfers, token %d was the last; the accounts hold %d and %d, together %d\n", cap(errs), mark, a,
		b, a+b)
	return nil
}

// transfer moves an amount under a lease on both accounts.
func transfer(ctx context.Context, c *lease.Client, accounts *memgate.Gate[int], from, to fencing.Resource,
	amount int) error {
	return c.Do(ctx, from, func(ctx context.Context, l *lease.Lease) error {
		source, target := lease.Gate(l, accounts), lease.Gate(l, accounts).For(to)
		if err := errors.Join(source.Enter(ctx), target.Enter(ctx)); err != nil {
			return err
		}
		if err := source.Do(ctx, func(balance *int) error { *balance -= amount; return nil }); err != nil {
			return err
		}
		return target.Do(ctx, func(balance *int) error { *balance += amount; return nil })
	}, lease.WithSet(to))
}
