// Command client takes a lock from a running service and writes through a gate. Start
// the service with `make run` first.
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/leased-project/leased/client"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/storagegate/memgate"
)

func main() {
	ctx := context.Background()
	locks, err := client.Dial(ctx, []string{"127.0.0.1:7420"})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close(ctx)
	gate := memgate.New[int](fencing.Rule{})

	err = locks.Do(ctx, "account/7", func(ctx context.Context, l *lease.Lease) error {
		// Enter before reading, write with the token: the gate decides, not the lease.
		if err := gate.Enter(ctx, l.GateResource(), l.Token()); err != nil {
			return err
		}
		return gate.Do(ctx, l.GateResource(), l.Token(), func(balance *int) error {
			*balance += 50
			fmt.Printf("%s mode, the balance is %d\n", l.Mode(), *balance)
			return nil
		})
	})
	if err != nil {
		log.Fatal(err)
	}
}
