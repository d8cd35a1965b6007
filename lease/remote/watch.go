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

// watch tells the status now and after each change. While no member can serve it
// it goes on trying.
func watch(ctx context.Context, m members, resource fencing.Resource, changed func(engine.Status)) error {
	if err := resource.Validate(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	poke := make(chan struct{}, 1)
	over := make(chan error, 1)
	go func() { over <- follow(ctx, m, resource, poke) }()
	for {
		select {
		case <-poke:
			status, err := inspect(ctx, m, resource)
			switch {
			case err == nil:
				changed(status)
			case ctx.Err() != nil:
				return context.Cause(ctx)
			case errors.Is(err, wire.ErrUnauthenticated):
				return err
			case errors.Is(err, engine.ErrUnavailable) || errors.Is(err, engine.ErrUncertain):
				select {
				case poke <- struct{}{}:
				default:
				}
			default:
				return err
			}
		case err := <-over:
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// follow keeps a watch open, and pokes whenever something has happened or may
// have.
func follow(ctx context.Context, m members, resource fencing.Resource, poke chan<- struct{}) error {
	for {
		err := m.do(ctx, func(l *link) error {
			stream, err := l.leases.Watch(ctx, &pb.WatchRequest{Resource: string(resource)})
			for err == nil {
				if _, err = stream.Recv(); err == nil {
					select {
					case poke <- struct{}{}:
					default:
					}
				}
			}
			return wire.FromStatus(err)
		})
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		refused := errors.Is(err, wire.ErrUnauthenticated)
		if refused || !errors.Is(err, engine.ErrUnavailable) && !errors.Is(err, engine.ErrUncertain) {
			return fmt.Errorf("watch %q: %w", string(resource), err)
		}
		if err := sleep(ctx, maxPause); err != nil {
			return err
		}
	}
}
