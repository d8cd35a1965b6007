package redlockadapter

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/redlockadapter/quorum"
)

// Init gives emptied nodes their votes by order of an operator: when a set of
// nodes is used for the first time (floor 0), or when a majority has lost its
// data. The operator answers for the floor: it must not be below any token that
// was ever granted, which the gates know. Locks that were held are forgotten, so
// wait for the longest TTL before it if holders may still be at work.
//
// Where a majority has data nothing is to be decided: Init changes nothing then,
// and the others rejoin by themselves.
func Init(ctx context.Context, config Config, floor fencing.Token) error {
	config = config.filled()
	if err := config.validate(); err != nil {
		return err
	}
	if floor != fencing.None && !floor.Valid() || floor > fencing.MaxToken-fullMargin {
		return fmt.Errorf("%w: floor %d leaves no room for tokens", lease.ErrInvalid, floor)
	}
	b := newBackend(config)
	defer b.closeClients()
	var err error
	for range 3 { // someone who has just seen the loss may put a join nonce of its own
		if err = b.decree(ctx, floor); err == nil {
			return nil
		}
	}
	return err
}

// decree makes one try at an Init.
func (b *Backend) decree(ctx context.Context, floor fencing.Token) error {
	states, errs := b.states(ctx)
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("%w: all nodes must be reachable for an init: %w", lease.ErrUnavailable, err)
	}
	reports := reportsOf(states, errs)
	epoch, majority := quorum.PlanRejoin(reports)
	if majority {
		return nil
	}
	// Epochs of nodes that have forgotten them cannot be seen. The time is above
	// those too, unless clocks went back.
	epoch = max(epoch, uint64(wallClock().UnixMilli()))
	return b.initEmpty(ctx, states, epoch, floor)
}

// initEmpty takes the steps of a rejoin for all empty nodes at once.
func (b *Backend) initEmpty(ctx context.Context, states []state, epoch uint64, floor fencing.Token) error {
	nonce := lease.NewSessionID().String()
	var mu sync.Mutex
	var failed []error
	step := func(do func(i int, n *node) error) error {
		b.each(func(i int, n *node) {
			if states[i].data {
				return
			}
			if err := do(i, n); err != nil {
				mu.Lock()
				failed = append(failed, fmt.Errorf("%s: %w", n.addr, err))
				mu.Unlock()
			}
		})
		return errors.Join(failed...)
	}
	err := step(func(_ int, n *node) error {
		_, err := n.run(ctx, joinScript, nonce)
		return err
	})
	if err != nil {
		return err
	}
	for _, r := range b.epochs.prepare(ctx, epoch, true) {
		floor = max(floor, r.Max)
	}
	return step(func(_ int, n *node) error {
		return n.initialise(ctx, nonce, epoch, floor, 0, longestTTL(states), false)
	})
}
