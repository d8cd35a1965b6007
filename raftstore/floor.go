package raftstore

import (
	"context"
	"fmt"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/raftstore/machine"
)

// RaiseFloor makes every token that is granted from now on larger than above.
// It is for locks that come from another engine, whose tokens must keep growing.
func (n *Node) RaiseFloor(ctx context.Context, above fencing.Token) error {
	if above > fencing.MaxToken-fencing.FloorStep {
		return fmt.Errorf("%w: floor %d leaves no room for tokens", lease.ErrInvalid, above)
	}
	var last fencing.Token
	if err := n.read(ctx, Linearizable, func(m *machine.Machine) { last = m.LastToken() }); err != nil {
		return fmt.Errorf("raise floor: %w", err)
	}
	if last >= above {
		return nil
	}
	// Tokens only grow, so that it is enough whatever is granted in between.
	result, _, err := n.propose(ctx, &machine.RaiseFloor{By: above - last})
	if err == nil && result.Code != machine.Done {
		err = fmt.Errorf("%w: the machine answered %s", lease.ErrUnavailable, result.Code)
	}
	if err != nil {
		return fmt.Errorf("raise floor: %w", err)
	}
	n.logger.Info("token floor raised", "above", above, "last", result.Token)
	return nil
}
