package redlockadapter

import (
	"context"
	"fmt"
	"slices"

	"github.com/leased-project/leased/lease"
)

// Adopt takes over what another process was granted for this attempt, when this
// one serves the session from now on: the same grant, with the same token, if a
// majority of the nodes still has it. The error matches ErrHeld if it has not.
// A node compares the whole name of a try, so the name is read from the nodes.
// Only leases that are held alone are taken over: of readers and permits the
// nodes keep less.
func (s *session) Adopt(ctx context.Context, request lease.Request) (lease.Grant, error) {
	if err := s.check(&request); err != nil {
		return lease.Grant{}, err
	}
	e, err := s.begin(ctx, request.Nonce)
	if err != nil {
		return lease.Grant{}, err
	}
	defer s.finish(request.Nonce, e)
	a := s.grantOf(e)
	if a == nil {
		if a, err = s.adopt(ctx, &request, e); err != nil {
			return lease.Grant{}, fmt.Errorf("adopt attempt %d: %w", request.Nonce, err)
		}
	}
	return lease.Grant{Token: a.token, Mode: lease.Efficiency, Sent: s.sentOf(a)}, nil
}

func (s *session) adopt(ctx context.Context, request *lease.Request, e *entry) (*attempt, error) {
	epoch, err := s.backend.epochs.usable()
	if err != nil {
		return nil, err
	}
	seen, err := s.backend.look(ctx, request.Resources[0])
	if err != nil {
		return nil, err
	}
	holders := s.backend.holders(seen)
	i := slices.IndexFunc(holders, func(h sighting) bool {
		p := h.party()
		return p.Session == s.config.ID && p.Nonce == request.Nonce && p.Kind == lease.Exclusive
	})
	if i < 0 {
		return nil, fmt.Errorf("%w: the nodes do not have it", lease.ErrHeld)
	}
	a := newAttempt(s, request, holders[i].name, epoch, claim{})
	a.body = holders[i].body()
	if a.plain() {
		a.short = newArgs(a.locks[0], a.body)
	}
	a.ask("")
	if err := a.await(ctx, min(2*s.backend.config.NodeTimeout, s.ttl/2)); err != nil {
		return nil, err // it runs out by itself: nothing of it was taken
	}
	if err := s.settle(request.Nonce, e, a); err != nil {
		if !a.over() {
			a.release(wakeNext)
		}
		return nil, err
	}
	return a, nil
}
