package routing

import (
	"context"
	"errors"

	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/redlockadapter"
)

// Acquire routes a request by the topology that this member has applied and calls
// try with the mode of its locks. It calls try again while the topology or the
// Redis fleet changes under the request. It is the only retry loop of a request in
// a member.
func (r *Router) Acquire(ctx context.Context, request *engine.Request, try func(mode engine.Mode) error) error {
	for {
		topology := r.Node.Topology()
		connected, _ := r.Redis.Backend()
		mode, err := topology.Route(request)
		routed := err == nil
		if routed {
			err = try(mode)
		}
		if err == nil || ctx.Err() != nil {
			return err
		}
		var migrating *engine.MigratingError
		switch now, _ := r.Redis.Backend(); {
		case mode == engine.Efficiency && now != nil && now != connected:
			// The fleet has changed: leases of the old fleet are void.
		case errors.Is(err, engine.ErrUncertain):
			return err
		case errors.Is(err, redlockadapter.ErrVersion), errors.Is(err, engine.ErrModeMismatch) && request.Mode == engine.AnyMode:
			if err := r.WaitTopology(ctx, topology.Version); err != nil {
				return err
			}
		case request.Wait && errors.Is(err, engine.ErrUnavailable) && (!routed || errors.As(err, &migrating)):
			// The locks migrate, or efficiency mode is not ready.
			if _, ended := r.Node.NextTopology(ctx, topology.Version); ended != nil {
				return err
			}
		default:
			return err
		}
	}
}
