package redlockadapter

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/redlockadapter/quorum"
	"github.com/leased-project/leased/redlockadapter/redisconn"
	"github.com/leased-project/leased/redlockadapter/scripts"
)

// renewal is the renewal of one lease on all nodes.
type renewal struct {
	backend *Backend
	done    chan struct{} // closed when the outcome is certain

	mu         sync.Mutex
	answers    quorum.Renewal
	newVersion int   // nodes that have seen a newer version
	err        error // of a node that failed or refused
}

// Renew extends each lease by its TTL, whichever process acquired it. A renewal never shortens an
// earlier one. Renew returns an error for each lease: nil if a quorum extended it, one that matches
// engine.ErrLost if it is lost, and any other one if the outcome is unknown.
func (b *Backend) Renew(ctx context.Context, leases []engine.Held) []error {
	errs, renewals := make([]error, len(leases)), make([]*renewal, len(leases))
	for i := range leases {
		if errs[i] = b.checkTTL(leases[i].TTL); errs[i] != nil {
			continue
		}
		under, err := b.authorize(leases[i].Resources)
		var migrating *engine.MigratingError
		if errors.As(err, &migrating) || errors.Is(err, engine.ErrModeMismatch) || errors.Is(err, engine.ErrInvalid) {
			err = fmt.Errorf("%w: %w", engine.ErrTaken, err) // invalid: one lock of the set has changed its mode
		}
		if err != nil {
			errs[i] = err
			continue
		}
		renewals[i], errs[i] = b.startRenewal(&leases[i], under)
	}
	for i, r := range renewals {
		if r != nil {
			errs[i] = r.await(ctx)
		}
		if errs[i] == nil {
			b.grants.renewed(leases[i].Name, b.clock.Now())
		}
		var migrating *engine.MigratingError // its lease counts until its deadline: a member may have extended it
		if errors.Is(errs[i], engine.ErrLost) && !errors.As(errs[i], &migrating) {
			b.abandon(leases[i])
		}
	}
	return errs
}

// abandon frees a lost lease on the nodes that still have it.
func (b *Backend) abandon(h engine.Held) {
	if a := b.grants.take(h.Name); a != nil {
		b.queues.release(a)
		return
	}
	b.releaseEverywhere(&h, scripts.Released)
}

// startRenewal sends the renewal to all nodes.
func (b *Backend) startRenewal(h *engine.Held, under authority) (*renewal, error) {
	r := &renewal{backend: b, done: make(chan struct{}), answers: quorum.Renewal{Nodes: len(b.nodes)}}
	call := b.scriptAttempt(h, under.version)
	request := call.Renew(h.Token)
	request.Servers = under.servers
	a := b.grants.find(h.Name)
	if a != nil {
		a.mu.Lock()
		ok := a.core.Renew()
		a.mu.Unlock()
		if !ok {
			return nil, fmt.Errorf("%w: the lease is being released", engine.ErrTaken)
		}
	}
	request.Answer = func(node int, got redisconn.Reply) {
		if a != nil {
			a.mu.Lock()
			a.core.Renewed(node, got.MaybeExecuted)
			a.mu.Unlock()
		}
		r.answered(got)
	}
	b.sendAll(request)
	return r, nil
}

func (r *renewal) answered(got redisconn.Reply) {
	_, err := scripts.Accepted(got)
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err == nil:
		r.answers.Extended++
	case errors.Is(err, scripts.ErrTaken) || errors.Is(err, scripts.ErrEnded):
		r.answers.Lost++
	default:
		r.answers.Failed++
		r.err = err
		if errors.Is(err, engine.ErrVersion) {
			r.newVersion++
		}
	}
	if r.answers.Outcome() != quorum.RenewalWaits {
		closeOnce(r.done)
	}
}

// await returns the outcome of the renewal.
func (r *renewal) await(ctx context.Context) error {
	select {
	case <-r.done:
	case <-ctx.Done():
		return fmt.Errorf("%w: renew: %w", engine.ErrUncertain, engine.Cause(ctx))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	b, outcome := r.backend, r.answers.Outcome()
	switch {
	case outcome == quorum.RenewalExtended:
		return nil
	case outcome == quorum.RenewalLost:
		return fmt.Errorf("%w: on %d of %d Redis nodes another attempt took the lock, or the lease was released",
			engine.ErrTaken, r.answers.Lost, len(b.nodes))
	case r.newVersion > 0:
		return b.outdated()
	}
	return fmt.Errorf("%w: %d of %d Redis nodes renewed the lease, %d are needed: %w",
		engine.ErrUncertain, r.answers.Extended, len(b.nodes), b.quorum, r.err)
}
