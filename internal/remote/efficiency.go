package remote

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/internal/perlease"
	"github.com/leased-project/leased/internal/wire"
	"github.com/leased-project/leased/lease/engine"
)

// maxRenewals is how many leases one operation renews at most, so that a message stays
// below the limit of the members whatever names and metadata the leases have.
const maxRenewals = 64

// Efficiency is an engine.Backend and a perlease.Engine for locks in efficiency mode,
// through any member of the service. Members keep no state of a lease: each call
// carries the lease, so another member can continue. All methods may be called
// concurrently.
type Efficiency struct {
	*connector // to any member
}

var (
	_ engine.Backend  = (*Efficiency)(nil)
	_ perlease.Engine = (*Efficiency)(nil)
)

// Open returns a session that exists only in this process. It calls no member.
func (e *Efficiency) Open(ctx context.Context, config engine.SessionConfig) (engine.Session, error) {
	if ctx.Err() != nil {
		return nil, engine.Cause(ctx)
	}
	return perlease.NewSession(e, config), nil
}

// send sends an operation to a member.
func (e *Efficiency) send(ctx context.Context, op *operation) (answer wire.Answer, err error) {
	err = e.connector.do(ctx, func(c *connection) error {
		answer, err = c.do(ctx, op)
		return err
	})
	return answer, err
}

// Acquire requests a lease. If the answer is lost the error is uncertain;
// perlease.Session then releases what the member may have acquired.
func (e *Efficiency) Acquire(ctx context.Context, session engine.SessionID, ttl time.Duration,
	request engine.Request) (engine.Held, error) {
	op := e.acquireOperation(ctx, session, request, ttl)
	answer, err := e.send(ctx, &op)
	if err != nil {
		return engine.Held{}, err
	}
	g, err := grantOf(&answer)
	if err != nil {
		return engine.Held{}, err
	}
	return engine.Held{Name: answer.Full.GetName(), Session: session, Nonce: request.Nonce, Resources: request.Resources,
		Token: g.Token, TTL: ttl, Holder: request.Holder, Metadata: request.Metadata}, nil
}

// Renew extends leases of one session and returns an error for each.
func (e *Efficiency) Renew(ctx context.Context, leases []engine.Held) []error {
	errs := make([]error, len(leases))
	var wg sync.WaitGroup
	for from := 0; from < len(leases); from += maxRenewals {
		to := min(from+maxRenewals, len(leases))
		wg.Go(func() { e.renew(ctx, leases[from:to], errs[from:to]) })
	}
	wg.Wait()
	return errs
}

// renew extends leases by one operation.
func (e *Efficiency) renew(ctx context.Context, leases []engine.Held, errs []error) {
	message := &pb.RenewCall{}
	byNonce := make(map[engine.Nonce]int, len(leases))
	for i, held := range leases {
		message.Leases = append(message.Leases, wire.FromHeld(held))
		byNonce[held.Nonce] = i
	}
	op := e.operation(ctx, leases[0].Session)
	op.other, op.urgent = &pb.Operation{Call: &pb.Operation_Renew{Renew: message}}, true
	var answer wire.Answer
	err := e.connector.do(ctx, func(c *connection) (err error) {
		if answer, err = c.do(ctx, &op); err == nil && len(answer.Full.GetHolds())+len(answer.Full.GetLost()) < len(leases) {
			e.moveOn(c) // perhaps only this member cannot reach the Redis nodes
		}
		return err
	})
	if err != nil {
		if errors.Is(err, engine.ErrLost) { // the error is not about one of the leases
			err = fmt.Errorf("%w: %s", engine.ErrUncertain, err.Error())
		}
		for i := range errs {
			errs[i] = err
		}
		return
	}
	for i := range errs {
		errs[i] = fmt.Errorf("%w: the Redis nodes did not confirm the renewal", engine.ErrUncertain)
	}
	for _, extended := range answer.Full.GetHolds() {
		if i, ok := byNonce[engine.Nonce(extended.Nonce)]; ok && uint64(leases[i].Token) == extended.Token {
			errs[i] = nil
		}
	}
	for _, n := range answer.Full.GetLost() {
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
	op := e.operation(ctx, held.Session)
	call := &pb.ReleaseCall{Nonce: uint64(held.Nonce), Lease: wire.FromHeld(held)}
	op.other = &pb.Operation{Call: &pb.Operation_Release{Release: call}}
	_, err := e.send(ctx, &op)
	return err
}
