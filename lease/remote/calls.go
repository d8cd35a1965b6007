package remote

import (
	"context"
	"errors"
	"fmt"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/lease/remote/wire"
)

// members is a way to run calls at a member that can serve them: the leader, or
// any.
type members interface {
	// do runs call on a link, and again on another one while it fails for want
	// of a member that can serve it. call may be repeated: it has one effect.
	do(ctx context.Context, call func(l *link) error) error
}

// Inspect tells who holds a lock and who waits for it.
func (b *Backend) Inspect(ctx context.Context, resource fencing.Resource) (engine.Status, error) {
	return inspect(ctx, b, resource)
}

// Break takes a lease away from its holder. If an earlier copy of the call may
// have arrived, that the token is held no more is what was wanted.
func (b *Backend) Break(ctx context.Context, resource fencing.Resource, token fencing.Token) error {
	return breakLease(ctx, b, resource, token)
}

// Watch tells the status now and after each change. While no leader can be
// reached it goes on trying.
func (b *Backend) Watch(ctx context.Context, resource fencing.Resource, changed func(engine.Status)) error {
	return watch(ctx, b, resource, changed)
}

func inspect(ctx context.Context, m members, resource fencing.Resource) (status engine.Status, err error) {
	err = unary(ctx, m, func(ctx context.Context, c *link) error {
		response, err := c.leases.Inspect(ctx, &pb.InspectRequest{Resource: string(resource)})
		if err != nil {
			return err
		}
		status, err = wire.ToStatusOf(response.Lock)
		return err
	})
	return status, err
}

func breakLease(ctx context.Context, m members, resource fencing.Resource, token fencing.Token) error {
	uncertain := false
	return unary(ctx, m, func(ctx context.Context, c *link) error {
		_, err := c.leases.Break(ctx, &pb.BreakRequest{Resource: string(resource), Token: uint64(token)})
		why := wire.FromStatus(err)
		if uncertain && errors.Is(why, engine.ErrNotHeld) {
			return nil
		}
		uncertain = uncertain || errors.Is(why, engine.ErrUncertain)
		return err
	})
}

// unary makes a call outside of the stream. One that is not answered within the
// patience is given up, and with it the link.
func unary(ctx context.Context, m members, call func(ctx context.Context, l *link) error) error {
	return m.do(ctx, func(l *link) error {
		limited, cancel := context.WithTimeout(ctx, l.uplink.settings.patience)
		defer cancel()
		err := wire.FromStatus(call(limited, l))
		if limited.Err() != nil && ctx.Err() == nil {
			l.uplink.retire(l, "", err)
			return fmt.Errorf("%w: %s does not answer", engine.ErrUncertain, l.address)
		}
		return err
	})
}
