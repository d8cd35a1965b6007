package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/redlockadapter"
)

// heldLocks is the number of locks held while memory is measured.
const heldLocks = 10_000

// memory measures the Redis memory of a held lock, and of a released lock, whose last
// token the nodes keep for a while.
func (b *bench) memory() error {
	b.measure("memory")
	ctx := context.Background()
	d, err := newLeased(b.addrs)
	if err != nil {
		return err
	}
	defer d.close()
	if err := d.pair(ctx, "memory/first", nil); err != nil { // loads the scripts
		return err
	}
	empty, err := b.usedMemory(ctx)
	if err != nil {
		return err
	}
	leases := make([]*lease.Lease, heldLocks)
	if err := concurrently(func(i int) (err error) { // a long TTL, so that renewals do not affect the measurement
		leases[i], err = d.client.Acquire(ctx, fencing.Resource(fmt.Sprintf("memory/%05d", i)), lease.WithTTL(redlockadapter.DefaultMaxTTL))
		return err
	}); err != nil {
		return err
	}
	held, err := b.usedMemory(ctx)
	if err != nil {
		return err
	}
	if err := concurrently(func(i int) error { return leases[i].Release(ctx) }); err != nil {
		return err
	}
	released, err := b.usedMemory(ctx)
	if err != nil {
		return err
	}
	most := func(after []float64) (bytes float64) {
		for i := range after {
			bytes = max(bytes, (after[i]-empty[i])/heldLocks)
		}
		return bytes
	}
	fmt.Fprintf(b.out, "\nbytes of Redis memory per lock, on the node that uses most, %d locks\n", heldLocks)
	fmt.Fprintf(b.out, "held\t%.0f\t(<= 250)\nreleased\t%.0f\n", most(held), most(released))
	return b.out.Flush()
}

// concurrently calls do for each of the held locks, and joins the errors of all callers.
func concurrently(do func(i int) error) error {
	const callers = 64
	errs := make([]error, callers)
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			for i := c; i < heldLocks && errs[c] == nil; i += callers {
				errs[c] = do(i)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// usedMemory returns the memory that each server uses for its data.
func (b *bench) usedMemory(ctx context.Context) (all []float64, err error) {
	for _, addr := range b.addrs {
		c := redis.NewClient(&redis.Options{Addr: addr})
		text, err := c.Info(ctx, "memory").Result()
		_ = c.Close()
		if err != nil {
			return nil, err
		}
		used := 0.0
		for line := range strings.Lines(text) {
			if value, ok := strings.CutPrefix(strings.TrimSpace(line), "used_memory_dataset:"); ok {
				used += number(value)
			}
			if value, ok := strings.CutPrefix(strings.TrimSpace(line), "used_memory_overhead:"); ok {
				used += number(value)
			}
			for _, part := range []string{"mem_clients_normal:", "mem_clients_slaves:"} { // connection buffers
				if value, ok := strings.CutPrefix(strings.TrimSpace(line), part); ok {
					used -= number(value)
				}
			}
		}
		all = append(all, used)
	}
	return all, nil
}

func number(text string) float64 {
	n, _ := strconv.ParseFloat(text, 64)
	return n
}
