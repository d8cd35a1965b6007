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
	balances := memgate.New[int](fencing.Rule{}) // in front of the data, here in memory

	err = locks.Do(ctx, "account/7", func(ctx context.Context, l *lease.Lease) error {
		account := lease.Gate(l, balances) // from here on, every write carries the token of l
		if err := account.Enter(ctx); err != nil {
			return err
		}
		return account.Do(ctx, func(balance *int) error {
			*balance += 50
			fmt.Printf("%s mode, the balance is %d\n", l.Mode(), *balance)
			return nil
		})
	})
	if err != nil {
		log.Fatal(err)
	}
}
