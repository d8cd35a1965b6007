package redlockadapter

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/leased-project/leased/lease/engine"
)

// renewal is the renewal of one lease on all nodes.
type renewal struct {
	backend  *Backend
	canceled atomic.Bool
	done     chan struct{} // closed when the outcome is certain

	mu            sync.Mutex
	yes, no, left int
	versions      int // nodes with a newer version
	decided       bool
	err           error // of a node that failed
}

// Renew extends leases that any process was granted, each by its TTL, and returns
// an error for each: nil if a majority of the nodes extended it; one that matches
// engine.ErrLost if it is lost; another one if it is not known to be extended.
func (b *Backend) Renew(ctx context.Context, leases []engine.Held) []error {
	errs, under := make([]error, len(leases)), make([]*renewal, len(leases))
	for i := range leases {
		version, err := b.authorize(leases[i].Resources)
		var moving *engine.MigratingError
		if errors.As(err, &moving) || errors.Is(err, engine.ErrModeMismatch) {
			err = fmt.Errorf("%w: %w", engine.ErrTaken, err)
		}
		if err != nil {
			errs[i] = err
			continue
		}
		under[i] = b.startRenewal(&leases[i], version)
	}
	for i, r := range under {
		if r != nil {
			errs[i] = r.await(ctx)
		}
		if errs[i] == nil {
			b.granted.used(leases[i].Name, b.clock.Now())
		}
		if errors.Is(errs[i], engine.ErrLost) {
			b.abandon(leases[i])
		}
	}
	return errs
}

// abandon frees what some nodes still have of a lost lease.
func (b *Backend) abandon(h engine.Held) {
	if a := b.granted.take(h.Name); a != nil {
		b.queues.release(a)
		return
	}
	request := b.releaseRequest(&h, causeReleased, wakeNext, true)
	request.answer = func(int, reply) {}
	for _, n := range b.nodes {
		n.push(request)
	}
}

func (b *Backend) startRenewal(h *engine.Held, version uint64) *renewal {
	r := &renewal{backend: b, done: make(chan struct{}), left: len(b.nodes)}
	request := newRequest(renewScript, keysOf(h.Resources), strconv.FormatUint(version, 10), b.fingerprint, h.Name, millis(h.TTL),
		detailsOf(h), h.Token.String())
	a := b.granted.find(h.Name)
	request.canceled = &r.canceled
	request.answer = func(node int, got reply) {
		if got.maybe && a != nil {
			a.mu.Lock()
			a.unknown |= 1 << node // its release must outlive a late copy
			a.mu.Unlock()
		}
		r.answered(got)
	}
	for _, n := range b.nodes {
		n.push(request)
	}
	return r
}

func (r *renewal) answered(got reply) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.left--
	switch {
	case got.err != nil:
		r.err = got.err
	case got.words == nil:
		r.yes++
	case got.word(0) == "taken" || got.word(0) == "ended":
		r.no++
	default:
		r.err = refusalOf(got)
		if errors.Is(r.err, ErrVersion) {
			r.versions++
		}
	}
	// With too many that failed the others cannot change the outcome, but whether
	// a majority says that the lease is lost is still to be heard.
	certain := r.yes >= r.backend.quorum || r.no >= r.backend.quorum || r.left == 0
	if certain && !r.decided {
		r.decided = true
		close(r.done)
	}
}

// await returns the outcome of a renewal.
func (r *renewal) await(ctx context.Context) error {
	select {
	case <-r.done:
	case <-ctx.Done():
		r.canceled.Store(true)
		return fmt.Errorf("%w: renew: %w", engine.ErrUncertain, context.Cause(ctx))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.backend
	switch {
	case r.yes >= b.quorum:
		return nil
	case r.no >= b.quorum:
		return fmt.Errorf("%w: %d of %d Redis nodes gave the lock to someone else or ended the lease", engine.ErrTaken, r.no, len(b.nodes))
	case r.versions > 0:
		b.poke()
		return b.versionError()
	}
	return fmt.Errorf("%w: %d of %d Redis nodes renewed the lease, %d are needed: %w", engine.ErrUncertain, r.yes, len(b.nodes), b.quorum, r.err)
}

// grants are the leases that this process was granted and has not released.
type grants struct {
	mu     sync.Mutex
	byName map[string]*attempt
}

func (g *grants) add(a *attempt) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.byName[a.Name] = a
}

func (g *grants) find(name string) *attempt {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.byName[name]
}

// take removes a grant and returns it, nil if it is not known.
func (g *grants) take(name string) *attempt {
	g.mu.Lock()
	defer g.mu.Unlock()
	a := g.byName[name]
	delete(g.byName, name)
	return a
}

// used notes that a grant was renewed by a request sent at this moment.
func (g *grants) used(name string, sent engine.Instant) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if a := g.byName[name]; a != nil {
		a.renewed = sent
	}
}

// expire removes the grants that were not renewed for twice their TTL: their
// callers have gone.
func (g *grants) expire(now engine.Instant) (gone []*attempt) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for name, a := range g.byName {
		if now.Since(a.renewed) > 2*a.TTL {
			gone = append(gone, a)
			delete(g.byName, name)
		}
	}
	return gone
}
