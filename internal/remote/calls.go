package remote

import (
	"context"
	"fmt"
	"time"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/wire"
	"github.com/leased-project/leased/lease/engine"
)

var (
	_ engine.Signer          = (*Backend)(nil)
	_ engine.Signer          = (*Efficiency)(nil)
	_ engine.RefusalReporter = (*Backend)(nil)
)

// call makes a call outside of the stream.
func (c *connector) call(ctx context.Context, f func(context.Context, pb.LeaseServiceClient) error) error {
	return c.do(ctx, func(conn *connection) error {
		return conn.unary(ctx, func(ctx context.Context) error { return f(ctx, conn.leases) })
	})
}

// Inspect returns the holders and waiters of a lock.
func (c *connector) Inspect(ctx context.Context, resource fencing.Resource) (status engine.Status, err error) {
	err = c.do(ctx, func(conn *connection) error {
		status, err = conn.inspect(ctx, resource)
		return err
	})
	return status, err
}

// Break ends the lease with this token.
func (c *connector) Break(ctx context.Context, resource fencing.Resource, token fencing.Token) error {
	return c.call(ctx, func(ctx context.Context, leases pb.LeaseServiceClient) error {
		_, err := leases.Break(ctx, &pb.BreakRequest{Resource: string(resource), Token: uint64(token)})
		return err
	})
}

// Sign returns the signed token of a lease that the caller holds.
func (c *connector) Sign(ctx context.Context, resource fencing.Resource,
	token fencing.Token) (signed engine.SignedToken, err error) {
	err = c.call(ctx, func(ctx context.Context, leases pb.LeaseServiceClient) error {
		response, err := leases.Sign(ctx, &pb.SignRequest{Resource: string(resource), Token: uint64(token)})
		if err != nil {
			return err
		}
		signed.Text = response.SignedToken
		signed.TTL, err = wire.ParseDuration("ttl", response.Ttl)
		return err
	})
	return signed, err
}

// ReportRefusal adds a refused write to the history of its lock, which the leader has.
func (b *Backend) ReportRefusal(ctx context.Context, refusal engine.Refusal) error {
	return b.call(ctx, func(ctx context.Context, leases pb.LeaseServiceClient) error {
		_, err := leases.ReportRefusal(ctx, &pb.ReportRefusalRequest{
			Resource: string(refusal.Resource), Token: uint64(refusal.Token), Mark: uint64(refusal.Mark),
			Gate: refusal.Gate, Reason: refusal.Reason, Holder: refusal.Holder})
		return err
	})
}

// Watch calls changed with the status of a lock, and again after each change, until
// ctx or the connection ends. It inspects the lock after each event. Events that
// arrive during an Inspect share the next one. A member sends the first event at once.
func (c *connector) Watch(ctx context.Context, resource fencing.Resource, changed func(engine.Status)) error {
	err := c.do(ctx, func(conn *connection) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		stream, err := conn.leases.Watch(ctx, &pb.WatchRequest{Resource: string(resource)})
		if err != nil {
			return conn.explain(err)
		}
		events, ended := make(chan struct{}, 1), make(chan error, 1)
		go func() {
			for {
				if _, err := stream.Recv(); err != nil {
					ended <- conn.explain(err)
					return
				}
				select {
				case events <- struct{}{}:
				default:
				}
			}
		}()
		first := time.NewTimer(c.settings.memberTime())
		defer first.Stop()
		for {
			select {
			case <-events:
				first.Stop()
				status, err := conn.inspect(ctx, resource)
				if err != nil {
					return err
				}
				changed(status)
			case err := <-ended:
				return err
			case <-first.C:
				return fmt.Errorf("%w: %s sent no event within %v", engine.ErrUnavailable, conn.address, c.settings.memberTime())
			}
		}
	})
	return fmt.Errorf("watch %q: %w", string(resource), err)
}

func (c *connection) inspect(ctx context.Context, resource fencing.Resource) (status engine.Status, err error) {
	err = c.unary(ctx, func(ctx context.Context) error {
		response, err := c.leases.Inspect(ctx, &pb.InspectRequest{Resource: string(resource)})
		if err == nil {
			status, err = wire.ToStatusOf(response.Lock)
		}
		return err
	})
	return status, err
}

// unary makes a call outside of the stream. If the answer takes too long, the connection is
// closed.
func (c *connection) unary(ctx context.Context, call func(ctx context.Context) error) error {
	timeout := c.connector.settings.memberTime()
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := c.explain(call(limited))
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		c.connector.abandon(c, "", err)
		return fmt.Errorf("%w: %s did not answer within %v", engine.ErrUncertain, c.address, timeout)
	}
	return err
}
