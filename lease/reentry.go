package lease

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

// holders knows what each named holder of a Client has, so that the same holder
// gets the same token again. Re-entry never asks the service: a second grant
// would have a second token, and fence out the first.
type holders struct {
	mu      sync.Mutex
	entries map[string]map[string]*entry // by the holder's name, then by the set
}

// entry is what one holder has, or is about to have, of one set of resources.
type entry struct {
	holder, set string
	turns       chan struct{} // held by the one acquisition that asks the service
	users       int           // acquisitions that hold or wait for their turn; guarded by holders.mu
	hold        *hold         // nil if the holder has nothing; guarded by holders.mu
}

// turn waits until no other acquisition of this holder asks for this set, and
// returns its entry. It refuses what could only wait for itself.
func (s *holders) turn(ctx context.Context, p *plan) (*entry, error) {
	e, err := s.find(p)
	if err != nil {
		return nil, err
	}
	if p.try {
		select {
		case e.turns <- struct{}{}:
			return e, nil
		default:
			s.leave(e)
			return nil, fmt.Errorf("%w: %q is about to acquire it", engine.ErrHeld, p.request.Holder)
		}
	}
	select {
	case e.turns <- struct{}{}:
		return e, nil
	case <-ctx.Done():
		s.leave(e)
		return nil, context.Cause(ctx)
	}
}

func (s *holders) find(p *plan) (*entry, error) {
	set := joined(p.request.Resources)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, other := range s.entries[p.request.Holder] {
		if other.set != set && other.hold != nil && other.hold.blocks(&p.request) {
			return nil, fmt.Errorf("%w: %q holds some of these resources as another set; re-enter the same set, or release it first",
				engine.ErrInvalid, p.request.Holder)
		}
	}
	e := s.entries[p.request.Holder][set]
	if e == nil {
		e = &entry{holder: p.request.Holder, set: set, turns: make(chan struct{}, 1)}
		if s.entries == nil {
			s.entries = map[string]map[string]*entry{}
		}
		if s.entries[e.holder] == nil {
			s.entries[e.holder] = map[string]*entry{}
		}
		s.entries[e.holder][set] = e
	}
	e.users++
	return e, nil
}

// done passes the turn on.
func (s *holders) done(e *entry) {
	<-e.turns
	s.leave(e)
}

func (s *holders) leave(e *entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.users--
	s.tidy(e)
}

// remember notes what the holder is given, before anyone can use it. The caller
// has the turn.
func (s *holders) remember(h *hold) {
	if h.entry == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	h.entry.hold = h
}

// forget notes that a hold has ended.
func (s *holders) forget(h *hold) {
	if h.entry == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.entry.hold == h {
		h.entry.hold = nil
	}
	s.tidy(h.entry)
}

// tidy removes an entry that nobody needs. The caller holds mu.
func (s *holders) tidy(e *entry) {
	if e.users == 0 && e.hold == nil && s.entries[e.holder][e.set] == e {
		delete(s.entries[e.holder], e.set)
		if len(s.entries[e.holder]) == 0 {
			delete(s.entries, e.holder)
		}
	}
}

// reenter returns one more lease of what the holder already has, nil if it has
// nothing yet. The token stays the same. The caller has the turn.
func (s *holders) reenter(ctx context.Context, e *entry, p *plan) (l *Lease, err error) {
	s.mu.Lock()
	h := e.hold
	s.mu.Unlock()
	if h == nil {
		return nil, nil
	}
	k := h.keeper
	now := k.client.clock.Now()
	k.mu.Lock()
	expired := k.expire(now, h)
	switch {
	case h.ended != nil:
	case h.request.Kind != p.request.Kind:
		err = fmt.Errorf("%w: %q holds it as %s and cannot re-enter it as %s; release it first",
			engine.ErrInvalid, p.request.Holder, h.request.Kind, p.request.Kind)
	case p.request.Mode != engine.AnyMode && p.request.Mode != h.grant.Mode:
		err = &engine.ModeError{Resource: h.named, Want: p.request.Mode, Have: h.grant.Mode}
	case p.ttl != 0 && p.ttl != k.timing.ttl || p.fixed && !k.fixed || p.request.Permits != h.request.Permits ||
		p.request.Metadata != nil && !maps.Equal(p.request.Metadata, h.request.Metadata):
		err = fmt.Errorf("%w: %q holds it with another TTL, renewal, number of permits or metadata; re-enter it without these options",
			engine.ErrInvalid, p.request.Holder)
	default:
		l = newLease(ctx, h)
	}
	k.mu.Unlock()
	k.tell(now, expired)
	return l, err
}

// blocks reports whether the holder of h would wait for itself.
func (h *hold) blocks(r *engine.Request) bool {
	if h.request.Kind == engine.Shared && r.Kind == engine.Shared {
		return false
	}
	return slices.ContainsFunc(r.Resources, func(name fencing.Resource) bool {
		return slices.Contains(h.request.Resources, name)
	})
}

// joined is a key for a set. No name contains the separator.
func joined(resources []fencing.Resource) string {
	var b strings.Builder
	for _, r := range resources {
		b.WriteString(string(r))
		b.WriteByte(0)
	}
	return b.String()
}
