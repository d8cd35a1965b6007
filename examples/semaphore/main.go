// Command semaphore shows permits: ten jobs share three slots. Each job guards its
// writes under the name of its slot, because holders of different slots do not exclude
// each other.
package main

import (
	"context"
	"fmt"
	"os"
	"sync"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/raftstore/memory"
	"github.com/leased-project/leased/storagegate/memgate"
)

const (
	slots = 3
	jobs  = 10
)

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "semaphore:", err)
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

	gate := memgate.New[int](fencing.Rule{}) // counts the jobs of each slot
	var (
		mu           sync.Mutex
		busy, widest int
		failed       error
		wg           sync.WaitGroup
	)
	allBusy := make(chan struct{}) // the first three jobs wait for each other
	enter := func(by int) {
		mu.Lock()
		defer mu.Unlock()
		busy += by
		if busy == slots && widest < slots {
			close(allBusy)
		}
		widest = max(widest, busy)
	}
	for range jobs {
		wg.Go(func() {
			err := client.Do(ctx, "workers", func(ctx context.Context, l *lease.Lease) error {
				enter(+1)
				defer enter(-1)
				<-allBusy
				return lease.Gate(l, gate).Do(ctx, func(done *int) error { *done++; return nil })
			}, lease.WithPermits(slots))
			if err != nil {
				mu.Lock()
				failed = err
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if failed != nil {
		return failed
	}
	total := 0
	for slot := 1; slot <= slots; slot++ {
		done, _, err := gate.Get(ctx, fencing.Resource("workers").Slot(slot))
		if err != nil {
			return err
		}
		total += done
	}
	fmt.Printf("%d jobs were done, at most %d at a time, each guarded under the name of its slot\n", total, widest)
	return nil
}
