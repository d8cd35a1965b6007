package lease

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/clientcore"
	"github.com/leased-project/leased/lease/engine"
)

// holderRegistry records what each named holder of a Client holds, so that the same
// holder gets the same token again. Re-entry does not ask the service: a second
// grant would have a new token and fence out the first lease.
type holderRegistry struct {
	mu      sync.Mutex
	records map[string]map[string]*holderRecord // by holder, then by set of resources
}

// holderRecord is the grant of one holder for one set of resources.
type holderRecord struct {
	holder, set string
	acquiring   chan struct{} // a mutex: held by the acquisition that asks the service
	users       int           // acquisitions that hold or wait for the mutex; guarded by the registry's mu
	grant       *heldGrant    // nil if the holder holds nothing; guarded by the registry's mu
}

// begin returns one more lease of the holder's grant if it has one. Otherwise it waits until no
// other acquisition of this holder asks for this set, and returns the record; the caller calls
// end. It refuses an acquisition that would deadlock with its own holder. values is the context of the lease.
func (r *holderRegistry) begin(ctx, values context.Context, s *acquireSettings) (*holderRecord, *Lease, error) {
	record, err := r.find(s)
	if err != nil {
		return nil, nil, err
	}
	if l, err := r.reenter(values, record, s); l != nil || err != nil {
		r.leave(record)
		return nil, l, err
	}
	if err := record.lock(ctx, s); err != nil {
		r.leave(record)
		return nil, nil, err
	}
	l, err := r.reenter(values, record, s) // the other acquisition may have been granted it
	if l != nil || err != nil {
		r.end(record)
	}
	return record, l, err
}

// lock locks the record for an acquisition that asks the service.
func (record *holderRecord) lock(ctx context.Context, s *acquireSettings) error {
	select {
	case record.acquiring <- struct{}{}:
		return nil
	default:
	}
	if s.try {
		return fmt.Errorf("%w: another call acquires it for holder %q", engine.ErrHeld, s.request.Holder)
	}
	select {
	case record.acquiring <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (r *holderRegistry) find(s *acquireSettings) (*holderRecord, error) {
	set := fmt.Sprintf("%q", s.request.Resources)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, other := range r.records[s.request.Holder] {
		if other.set != set && other.grant != nil && other.grant.blocks(&s.request) {
			return nil, fmt.Errorf("%w: holder %q holds some of these resources as another set; re-enter the same set, or "+
				"release it first",
				engine.ErrInvalid, s.request.Holder)
		}
	}
	record := r.records[s.request.Holder][set]
	if record == nil {
		record = &holderRecord{holder: s.request.Holder, set: set, acquiring: make(chan struct{}, 1)}
		if r.records == nil {
			r.records = map[string]map[string]*holderRecord{}
		}
		if r.records[record.holder] == nil {
			r.records[record.holder] = map[string]*holderRecord{}
		}
		r.records[record.holder][set] = record
	}
	record.users++
	return record, nil
}

// end lets the next acquisition of the record begin.
func (r *holderRegistry) end(record *holderRecord) {
	<-record.acquiring
	r.leave(record)
}

func (r *holderRegistry) leave(record *holderRecord) {
	r.mu.Lock()
	defer r.mu.Unlock()
	record.users--
	r.deleteUnused(record)
}

// add records a grant before any caller can use it. The caller is between begin and
// end.
func (r *holderRegistry) add(g *heldGrant) {
	if g.record == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	g.record.grant = g
}

// remove records that a grant ended.
func (r *holderRegistry) remove(g *heldGrant) {
	if g.record == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if g.record.grant == g {
		g.record.grant = nil
	}
	r.deleteUnused(g.record)
}

// deleteUnused deletes a record without grant and users. The caller holds mu.
func (r *holderRegistry) deleteUnused(record *holderRecord) {
	if record.users == 0 && record.grant == nil && r.records[record.holder][record.set] == record {
		delete(r.records[record.holder], record.set)
		if len(r.records[record.holder]) == 0 {
			delete(r.records, record.holder)
		}
	}
}

// reenter returns one more lease of the holder's grant, nil if it has none. It needs no lock of the
// record, so that calls that re-enter at the same time do not refuse each other.
func (r *holderRegistry) reenter(ctx context.Context, record *holderRecord, s *acquireSettings) (l *Lease, err error) {
	r.mu.Lock()
	g := record.grant
	r.mu.Unlock()
	if g == nil {
		return nil, nil
	}
	k := g.keepAlive
	c, key := k.client, k.core.Key()
	c.update(func(now engine.Instant) []*clientcore.Grant {
		expired := k.check(now, g)
		switch {
		case g.Grant.Err() != nil:
		case g.kind != s.request.Kind:
			err = fmt.Errorf("%w: holder %q holds it as %s and cannot re-enter it as %s; release it first",
				engine.ErrInvalid, s.request.Holder, g.kind, s.request.Kind)
		case s.request.Mode != engine.AnyMode && s.request.Mode != g.mode:
			err = &engine.ModeError{Resource: g.named, Want: s.request.Mode, Have: g.mode}
		case s.ttl != 0 && s.ttl != key.TTL || s.fixed && !k.core.Fixed() || s.request.Permits != g.permits ||
			s.request.Metadata != nil && !maps.Equal(s.request.Metadata, g.Held.Metadata):
			err = fmt.Errorf("%w: holder %q holds it with another TTL, renewal, number of permits or metadata; re-enter it "+
				"without these options",
				engine.ErrInvalid, s.request.Holder)
		default:
			l = g.add(&Lease{}, ctx)
		}
		return expired
	})
	return l, err
}

// blocks reports whether a request by the holder of g would wait for g.
func (g *heldGrant) blocks(r *engine.Request) bool {
	if g.kind == engine.Shared && r.Kind == engine.Shared {
		return false
	}
	return slices.ContainsFunc(r.Resources, func(name fencing.Resource) bool {
		return slices.Contains(g.Held.Resources, name)
	})
}
