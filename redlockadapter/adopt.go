package redlockadapter

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease"
)

// Adopt takes over what another process was granted for this attempt, when this
// one serves its session from now on: the same token, for a full TTL. With a token
// that is not None only that one is taken over. The error matches
// lease.ErrNotHeld if no majority of the nodes has it, and lease.ErrUncertain if
// that cannot be told, or if it came to no end: then nothing is released, since the
// other process may hold on to it, and the TTL decides.
//
// Only leases that are held alone are taken over. Readers and permits of a process
// that is gone are lost, and their places free after a TTL.
func (s *session) Adopt(ctx context.Context, request lease.Request, token fencing.Token) (lease.Grant, error) {
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
		if a, err = s.adopt(ctx, &request, token, e); err != nil {
			return lease.Grant{}, fmt.Errorf("adopt attempt %d: %w", request.Nonce, err)
		}
	} else if a, err = s.askedAgain(ctx, &request, e, a); err != nil {
		return lease.Grant{}, err
	}
	if token != fencing.None && a.token != token {
		return lease.Grant{}, fmt.Errorf("adopt attempt %d: %w with token %d, but with %d", request.Nonce, lease.ErrNotHeld, token, a.token)
	}
	return s.grant(a), nil
}

func (s *session) adopt(ctx context.Context, request *lease.Request, token fencing.Token, e *entry) (*attempt, error) {
	seen, err := s.backend.look(ctx, request.Resources[0])
	if err != nil {
		return nil, fmt.Errorf("%w: who holds it cannot be seen: %v", lease.ErrUncertain, err)
	}
	mine := func(h sighting) bool {
		p := h.party()
		return p.Session == s.config.ID && p.Nonce == request.Nonce && p.Kind == lease.Exclusive
	}
	holders := s.backend.holders(seen)
	i := slices.IndexFunc(holders, mine)
	if i < 0 && s.backend.maybe(seen, mine) {
		return nil, fmt.Errorf("%w: some Redis nodes have it, but no majority agrees on its name and token", lease.ErrUncertain)
	}
	if i < 0 || request.Kind != lease.Exclusive || token != fencing.None && holders[i].counter != token {
		return nil, fmt.Errorf("%w: the Redis nodes have no lease of it that can be taken over", lease.ErrNotHeld)
	}
	a := newAttempt(s, request, s.name(request.Nonce), s.backend.epochs.current.Load(), claim{})
	first := strconv.Itoa(len(a.locks)) + " " + s.ttlText + " " + holders[i].counter.String()
	all := append(append([]string{first}, a.locks...), a.body, holders[i].body())
	o := &op{script: adoptScript, args: newArgs(all...), stop: &a.stop, answer: a.voted}
	a.sent = s.config.Clock.Now()
	for _, l := range s.backend.lanes {
		l.push(o)
	}
	if err = a.await(ctx, min(2*s.backend.config.NodeTimeout, s.ttl/2)); err == nil {
		err = s.settle(request.Nonce, e, a)
	}
	if err == nil {
		return a, nil
	}
	if s.gaveUp(e) {
		a.release(wakeNext) // by order of the client
	} else {
		a.abandon()
	}
	return nil, fmt.Errorf("%w: it could not be taken over: %v", lease.ErrUncertain, err)
}

// maybe reports whether a majority may have one of these, some of it on nodes that
// did not tell.
func (b *Backend) maybe(seen [][]sighting, these func(sighting) bool) bool {
	with := 0
	for _, node := range seen {
		if slices.ContainsFunc(node, these) {
			with++
		}
	}
	return with > 0 && with+len(b.lanes)-len(seen) >= b.quorum
}

// gaveUp reports whether the client has released the attempt meanwhile.
func (s *session) gaveUp(e *entry) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return e.released || s.closed
}

// abandon ends the attempt here, and tells no node: what it has is left to the TTL.
func (a *attempt) abandon() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ended = true
	a.stop.Store(true)
}
