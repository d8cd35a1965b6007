package refusals_test

import (
	"context"
	"fmt"
	"log"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/memory"
	"github.com/leased-project/leased/storagegate/memgate"
	"github.com/leased-project/leased/telemetry/refusals"
)

// printing stands for a service, which has the history of each lock.
type printing struct{ engine.Backend }

func (printing) ReportRefusal(_ context.Context, r engine.Refusal) error {
	fmt.Printf("%s: the %s gate refused token %d of %s (%s, mark %d)\n", r.Resource, r.Gate, r.Token, r.Holder, r.Reason,
		r.Mark)
	return nil
}

func Example() {
	ctx := context.Background()
	backend, err := memory.New()
	if err != nil {
		log.Fatal(err)
	}
	client, err := lease.New(printing{backend}, lease.WithName("worker-1")) // client.Dial in a program
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(ctx)

	reporter := refusals.New(client)
	gate := memgate.New[int](fencing.Rule{})
	gate.Audit(reporter.Audit("memory"))

	add := func(value *int) error { *value++; return nil }
	if err := gate.Do(ctx, "orders/7", 34, add); err != nil { // the next holder writes
		log.Fatal(err)
	}
	fmt.Println(gate.Do(ctx, "orders/7", 33, add)) // a holder that was paused wakes up
	if err := reporter.Flush(ctx); err != nil {
		log.Fatal(err)
	}
	// Unordered output:
	// stale fencing token 33 for "orders/7": 34 has been admitted; the lease is lost, stop writing
	// orders/7: the memory gate refused token 33 of worker-1 (stale, mark 34)
}
