// Command election shows leader election: candidates campaign, one leads, steps down
// and campaigns again, while an observer follows the leader.
//
// A leader that was paused does not know that it was replaced: its writes must carry
// its token to a gate. `leased demo pause` shows why.
package main

import (
	"context"
	"fmt"
	"os"
	"sync"

	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/memory"
)

const terms = 4

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "election:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	service, err := memory.New()
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	seen := make(chan lease.Leader)
	var wg sync.WaitGroup
	wg.Go(func() { observe(ctx, service, seen) })

	// Ann campaigns first, and Ben when she leads. A leader that steps down queues
	// behind the candidates that wait, so the two alternate.
	won, stepDown, queued := make(chan struct{}), make(chan struct{}), make(chan struct{})
	for _, name := range []string{"ann", "ben"} {
		c, err := lease.New(service, lease.WithName(name),
			lease.WithHooks(lease.Hooks{Waiting: func(context.Context, lease.Event) { queued <- struct{}{} }}))
		if err != nil {
			return err
		}
		defer c.Close(context.WithoutCancel(ctx))
		wg.Go(func() { campaign(ctx, c, won, stepDown) })
		if name == "ann" {
			<-won
		} else {
			<-queued
		}
	}

	var last lease.Leader
	for term := range terms {
		if term > 0 {
			<-won
		}
		for leader := range seen {
			if leader.Token.Newer(last.Token) {
				last = leader
				break
			}
		}
		fmt.Printf("%s leads with token %d, and steps down\n", last.Holder, last.Token)
		stepDown <- struct{}{}
		<-queued
	}
	stop()
	wg.Wait()
	return nil
}

// campaign leads until it has to step down, and campaigns again.
func campaign(ctx context.Context, c *lease.Client, won chan<- struct{}, stepDown <-chan struct{}) {
	_ = c.Elect(ctx, "leader", func(ctx context.Context, _ *lease.Lease) error {
		select {
		case won <- struct{}{}:
		case <-ctx.Done():
			return nil
		}
		select {
		case <-stepDown:
		case <-ctx.Done():
		}
		return nil
	})
}

func observe(ctx context.Context, service engine.Backend, seen chan<- lease.Leader) {
	c, err := lease.New(service)
	if err != nil {
		return
	}
	defer c.Close(context.WithoutCancel(ctx))
	_ = c.Observe(ctx, "leader", func(leader lease.Leader) {
		select {
		case seen <- leader:
		case <-ctx.Done():
		}
	})
}
