package remote

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/lease/perlease"
	"github.com/leased-project/leased/lease/remote/wire"
)

// maxRenewals is how many leases one operation renews, so that a message stays
// below the limit of gRPC whatever metadata they have.
const maxRenewals = 256

// Efficiency is the way to locks in efficiency mode through a member, any of them:
// members keep nothing of a lease, so that each call names what it is about, and
// another member continues where one has ended. It is a engine.Backend, and a
// perlease.Engine. All methods may be called concurrently.
type Efficiency struct {
	settings *settings
	uplink   *uplink
}

var (
	_ engine.Backend  = (*Efficiency)(nil)
	_ perlease.Engine = (*Efficiency)(nil)
)

// Open starts a session. It lives in this process: nothing is asked of a member.
func (e *Efficiency) Open(ctx context.Context, config engine.SessionConfig) (engine.Session, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return perlease.NewSession(e, config), nil
}

// Inspect tells who holds a lock and who waits for it.
func (e *Efficiency) Inspect(ctx context.Context, resource fencing.Resource) (engine.Status, error) {
	return inspect(ctx, e, resource)
}

// Break takes a lease away from its holder. If an earlier copy of the call may
// have arrived, that the token is held no more is what was wanted.
func (e *Efficiency) Break(ctx context.Context, resource fencing.Resource, token fencing.Token) error {
	return breakLease(ctx, e, resource, token)
}

// Watch tells the status now and after each change. While no member can serve it
// it goes on trying.
func (e *Efficiency) Watch(ctx context.Context, resource fencing.Resource, changed func(engine.Status)) error {
	return watch(ctx, e, resource, changed)
}

// do runs call at a member, and at the next one while the connection breaks or the
// member cannot serve: its Redis nodes may be out of reach for it alone. call may
// be repeated.
func (e *Efficiency) do(ctx context.Context, call func(l *link) error) error {
	refused := refusals{by: map[string]bool{}}
	unable := map[string]bool{}
	limit := e.settings.clock.Now().Add(e.settings.patience)
	for n := 0; ; n++ {
		l, err := e.uplink.connect(ctx)
		if err == nil {
			err = call(l)
		}
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			if !errors.Is(err, context.Cause(ctx)) {
				err = fmt.Errorf("%w (last: %w)", context.Cause(ctx), err)
			}
			return err
		}
		again := !errors.Is(err, errClosed)
		var moving *engine.MigratingError
		switch {
		case errors.Is(err, engine.ErrUncertain):
		case errors.As(err, &moving):
			again = false
		case errors.Is(err, wire.ErrUnauthenticated):
			again = again && l != nil && refused.goOn(l.address, len(e.settings.endpoints))
			if l != nil {
				e.uplink.retire(l, "", err)
			}
		case errors.Is(err, engine.ErrUnavailable) && l != nil:
			unable[l.address] = true
			again = again && len(unable) < len(e.settings.endpoints) && e.uplink.leave(l)
		case errors.Is(err, engine.ErrUnavailable): // it could not be reached
		default:
			again = false
		}
		if !again || e.settings.clock.Now().Until(limit) <= 0 {
			return err
		}
		if n >= len(e.settings.endpoints)-1 {
			if sleep(ctx, min(minPause<<min(n, 10), maxPause)) != nil {
				return fmt.Errorf("%w (last: %w)", context.Cause(ctx), err)
			}
		}
	}
}

// Acquire asks for a lease. If a connection breaks before the answer the next
// member is asked to end what the first one may have been granted, then to acquire.
func (e *Efficiency) Acquire(ctx context.Context, session engine.SessionID, ttl time.Duration, request engine.Request) (engine.Held, error) {
	held := engine.Held{Session: session, Nonce: request.Nonce, Resources: request.Resources, TTL: ttl,
		Holder: request.Holder, Metadata: request.Metadata}
	p := &pending{key: attempt{session, request.Nonce}}
	if request.Queued != nil {
		p.queued = sync.OnceFunc(request.Queued)
	}
	message := wire.FromRequest(&request)
	message.TtlNanos = int64(ttl)
	limit := e.settings.patience
	if request.Wait {
		limit = 0
	}
	asked := false
	err := e.do(ctx, func(l *link) error {
		if asked {
			if err := e.release(ctx, l, held); errors.Is(err, engine.ErrUncertain) {
				return err
			}
		}
		asked = true
		op := &pb.Operation{Session: session[:], Call: &pb.Operation_Acquire{Acquire: message}}
		answer, err := l.do(ctx, op, p, limit)
		if err != nil {
			return err
		}
		held.Name, held.Token = answer.Name, fencing.Token(answer.Token)
		return nil
	})
	if err != nil {
		return engine.Held{}, err
	}
	return held, nil
}

// Renew extends leases, and returns an error for each.
func (e *Efficiency) Renew(ctx context.Context, leases []engine.Held) []error {
	errs := make([]error, len(leases))
	var wg sync.WaitGroup
	for from := 0; from < len(leases); {
		to := from + 1
		for to < len(leases) && to-from < maxRenewals && leases[to].Session == leases[from].Session {
			to++
		}
		part, outcome := leases[from:to], errs[from:to]
		if to == len(leases) { // most often there is one operation
			e.renew(ctx, part, outcome)
		} else {
			wg.Go(func() { e.renew(ctx, part, outcome) })
		}
		from = to
	}
	wg.Wait()
	return errs
}

// renew extends leases of one session by one operation.
func (e *Efficiency) renew(ctx context.Context, leases []engine.Held, errs []error) {
	message := &pb.RenewCall{}
	byNonce := make(map[engine.Nonce]int, len(leases))
	for i, held := range leases {
		message.Leases = append(message.Leases, wire.FromHeld(held))
		byNonce[held.Nonce] = i
	}
	session := leases[0].Session
	var answer *pb.Answer
	err := e.do(ctx, func(l *link) (err error) {
		op := &pb.Operation{Session: session[:], Call: &pb.Operation_Renew{Renew: message}}
		answer, err = l.do(ctx, op, &pending{urgent: true}, e.settings.patience)
		return err
	})
	if err != nil {
		if errors.Is(err, engine.ErrLost) { // it is about no lease in particular
			err = fmt.Errorf("%w: %s", engine.ErrUncertain, err.Error())
		}
		for i := range errs {
			errs[i] = err
		}
		return
	}
	for _, nonce := range answer.Failed {
		if i, ok := byNonce[engine.Nonce(nonce)]; ok {
			errs[i] = fmt.Errorf("%w: the Redis nodes did not confirm the renewal", engine.ErrUncertain)
		}
	}
	for _, n := range answer.Lost {
		if i, ok := byNonce[engine.Nonce(n.Nonce)]; ok {
			errs[i] = wire.ToError(n.Lost)
			if !errors.Is(errs[i], engine.ErrLost) {
				errs[i] = fmt.Errorf("%w: %s", engine.ErrNotHeld, n.Lost.GetMessage())
			}
		}
	}
}

// Release ends a lease.
func (e *Efficiency) Release(ctx context.Context, held engine.Held) error {
	err := e.do(ctx, func(l *link) error { return e.release(ctx, l, held) })
	if errors.Is(err, engine.ErrLost) {
		return nil
	}
	return err
}

func (e *Efficiency) release(ctx context.Context, l *link, held engine.Held) error {
	op := &pb.Operation{Session: held.Session[:], Call: &pb.Operation_Release{
		Release: &pb.ReleaseCall{Nonce: uint64(held.Nonce), Lease: wire.FromHeld(held)}}}
	_, err := l.do(ctx, op, &pending{}, e.settings.patience)
	return err
}
