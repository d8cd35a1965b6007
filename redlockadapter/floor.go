package redlockadapter

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease"
)

// RaiseFloor makes every token that is granted from now on larger than above.
// It is for locks that come from another engine, whose tokens must keep growing.
// When it returns nil a majority of the nodes has raised its floor; a later grant
// needs a vote of one of them.
func (b *Backend) RaiseFloor(ctx context.Context, above fencing.Token) error {
	if above > fencing.MaxToken-fullMargin {
		return fmt.Errorf("%w: floor %d leaves no room for tokens", lease.ErrInvalid, above)
	}
	var raised atomic.Int64
	b.each(func(_ int, n *node) {
		reply, err := n.run(ctx, floorScript, above.String())
		if err == nil && reply[0] == "ok" {
			raised.Add(1)
		}
	})
	if int(raised.Load()) < b.quorum {
		return fmt.Errorf("%w: %d of %d Redis nodes have raised their floor, %d are needed", lease.ErrUnavailable, raised.Load(), len(b.nodes), b.quorum)
	}
	return nil
}
