package redlockadapter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/redlockadapter/quorum"
	"github.com/leased-project/leased/redlockadapter/redisconn"
	"github.com/leased-project/leased/redlockadapter/scripts"
)

// records returns the records of a lock on the nodes that answered: a quorum at least. The error matches
// engine.ErrVersion if a node has seen a newer version of the policies: the lock may be in correctness mode, and a
// record that shows it as free would be false.
func (b *Backend) records(ctx context.Context, resource fencing.Resource) ([]scripts.Record, error) {
	under, err := b.authorize(nil)
	if err != nil {
		return nil, err
	}
	var (
		mu      sync.Mutex
		found   []scripts.Record
		errs    = make([]error, len(b.nodes))
		pending = len(b.nodes)
		done    = make(chan struct{})
	)
	r := scripts.Inspect(resource, under.version)
	r.Servers = under.servers
	r.Answer = func(node int, got redisconn.Reply) {
		one, err := scripts.ParseRecord(got)
		mu.Lock()
		defer mu.Unlock()
		if errs[node] = err; err == nil {
			found = append(found, one)
		}
		if pending--; pending == 0 {
			close(done)
		}
	}
	b.sendAll(r)
	select {
	case <-done:
	case <-ctx.Done():
		return nil, engine.Cause(ctx)
	}
	return found, b.checkRead(errs)
}

// checkRead returns an error if fewer than a quorum of the nodes answered a read, or if one of them has seen a newer
// version. The others do not make up for that one: a lease may be on a bare quorum of the nodes.
func (b *Backend) checkRead(errs []error) error {
	answered := 0
	for _, err := range errs {
		if errors.Is(err, engine.ErrVersion) {
			return b.outdated()
		}
		if err == nil {
			answered++
		}
	}
	if answered < b.quorum {
		return b.quorumError(errs)
	}
	return nil
}

// holder returns the lease that holds the lock according to the records, and how long it has left; ok is false if
// there is none. A quorum of the nodes has the lease. Or fewer have it, but the nodes that did not answer could
// complete the quorum, the lease is known to be granted, and no node knows that it has ended: a node that has restarted
// has no record of the lease until the next renewal.
func (b *Backend) holder(resource fencing.Resource, found []scripts.Record) (h engine.Held, left time.Duration,
	ok bool) {
	byName, past, silent := map[string][]scripts.Record{}, fencing.None, len(b.nodes)-len(found)
	for _, r := range found {
		past = max(past, r.Past)
		if r.Name != "" {
			byName[r.Name] = append(byName[r.Name], r)
		}
	}
	for name, same := range byName {
		switch token := b.grantedToken(name, same); {
		case token <= h.Token: // it was not granted, or is older
		case len(same) < b.quorum && (len(same)+silent < b.quorum || token <= past):
		default:
			slices.SortFunc(same, func(x, y scripts.Record) int { return int(y.Left - x.Left) })
			h = leaseOf(name, same[0].Details, resource)
			h.Token, left = token, same[min(b.quorum, len(same))-1].Left
		}
	}
	return h, left, h.Token != fencing.None
}

// grantedToken returns the granted token of an attempt from its records, None if they do not tell it.
// quorum.GrantedToken decides, unless this process was granted the lease or a node knows the token.
func (b *Backend) grantedToken(name string, records []scripts.Record) fencing.Token {
	if a := b.grants.find(name); a != nil {
		return a.Token
	}
	tokens := make([]fencing.Token, len(records))
	for i, r := range records {
		if tokens[i] = r.Token; r.Granted() != fencing.None {
			return r.Token
		}
	}
	return quorum.GrantedToken(tokens, len(b.nodes))
}

// Find reads a lease from the nodes. The error matches engine.ErrNotHeld if a quorum does
// not hold the lock with this token, and engine.ErrUnavailable if that cannot be told: if some nodes have
// the lease, it is returned with the error, unless they name several attempts.
func (b *Backend) Find(ctx context.Context, resource fencing.Resource, token fencing.Token) (engine.Held, error) {
	found, err := b.records(ctx, resource)
	if err != nil {
		return engine.Held{}, err
	}
	holder, _, ok := b.holder(resource, found)
	if ok && holder.Token == token {
		return holder, nil
	}
	h, have := engine.Held{}, 0
	for _, r := range found {
		if r.Name == "" || r.Name == holder.Name || r.Token != token {
			continue
		}
		if have++; have > 1 && h.Name != r.Name {
			h = engine.Held{} // another attempt, which was not granted, has the token on some nodes
		} else {
			h = leaseOf(r.Name, r.Details, resource)
		}
	}
	if have > 0 && have+len(b.nodes)-len(found) >= b.quorum {
		return h, fmt.Errorf("%w: %d of %d Redis nodes have the lease on %q with token %d, and %d did not answer",
			engine.ErrUnavailable, have, len(b.nodes), string(resource), token, len(b.nodes)-len(found))
	}
	return engine.Held{}, notHeld(resource, token)
}

func notHeld(resource fencing.Resource, token fencing.Token) error {
	return fmt.Errorf("%q: %w with token %d", string(resource), engine.ErrNotHeld, token)
}

// Attempts returns the tries of an attempt that any node still has. Only a try that a quorum has is a lease, with its
// token. The others block the lock until they are released: the process that made them may have ended in between.
func (b *Backend) Attempts(ctx context.Context, resource fencing.Resource, session engine.SessionID,
	nonce engine.Nonce) (tries []engine.Held, err error) {
	found, err := b.records(ctx, resource)
	if err != nil {
		return nil, err
	}
	lease, _, _ := b.holder(resource, found)
	seen := map[string]bool{}
	for _, r := range found {
		if s, n := AttemptOf(r.Name); s != session || n != nonce || seen[r.Name] {
			continue
		}
		seen[r.Name] = true
		h := leaseOf(r.Name, r.Details, resource)
		if r.Name == lease.Name {
			h = lease
		}
		tries = append(tries, h)
	}
	return tries, nil
}

// ReleaseAbandoned releases those tries of an attempt, as returned by Attempts, whose process ended before it decided
// them, and reports whether there were any: they have no token, and are still on the nodes after the time in which a
// process withdraws a try.
func (b *Backend) ReleaseAbandoned(ctx context.Context, tries []engine.Held) (released bool, err error) {
	undecided := map[string]bool{}
	for _, h := range tries {
		undecided[h.Name] = h.Token == fencing.None
	}
	if !slices.ContainsFunc(tries, func(h engine.Held) bool { return undecided[h.Name] }) {
		return false, nil
	}
	if err := engine.Sleep(ctx, 3*b.config.NodeTimeout); err != nil {
		return false, err
	}
	first := tries[0]
	if tries, err = b.Attempts(ctx, first.Resources[0], first.Session, first.Nonce); err != nil {
		return false, err
	}
	for _, h := range tries {
		if undecided[h.Name] && h.Token == fencing.None {
			released = true
			err = errors.Join(err, b.releaseEverywhere(&h, scripts.Withdrawn).await(ctx))
		}
	}
	return released, err
}

// Ended returns how a lease ended: "released" or "broken", or "expired" if the nodes
// know of neither.
func (b *Backend) Ended(ctx context.Context, resource fencing.Resource, session engine.SessionID,
	nonce engine.Nonce) (string, error) {
	found, err := b.records(ctx, resource)
	if err != nil {
		return "", err
	}
	how := "expired"
	for _, r := range found {
		if s, n := AttemptOf(r.Ended); s == session && n == nonce && how != string(scripts.Broken) {
			how = string(r.Cause) // its holder may have released a broken lease
		}
	}
	return how, nil
}

// Break takes the lease with this token away from its holder. When it returns nil, no renewal succeeds that is sent
// from then on: see docs/REDLOCK.md. An error that matches engine.ErrUncertain and engine.ErrVersion asks for a newer
// topology.
func (b *Backend) Break(ctx context.Context, resource fencing.Resource, token fencing.Token) error {
	h, broken, err := b.findForBreak(ctx, resource, token)
	if err != nil {
		return fmt.Errorf("break: %w", err)
	}
	b.forget(h.Name)
	first := b.releaseEverywhere(&h, scripts.Broken)
	if err = first.await(ctx); err == nil {
		err = b.confirmBreak(&h, first.under).await(ctx)
	}
	switch {
	case errors.Is(err, engine.ErrVersion):
		_ = b.outdated()
	case err == nil && broken:
		err = notHeld(resource, token)
	case err == nil:
		b.debug("broken", &h)
	}
	return err
}

// findForBreak reads a lease like Find, also if fewer than a quorum have it: an earlier break may have reached some
// nodes only. broken says that a quorum have recorded a break.
func (b *Backend) findForBreak(ctx context.Context, resource fencing.Resource, token fencing.Token) (h engine.Held,
	broken bool, err error) {
	found, err := b.records(ctx, resource)
	if err != nil {
		return engine.Held{}, false, err
	}
	h, _, ok := b.holder(resource, found)
	switch {
	case ok && h.Token == token:
		return h, false, nil
	case ok: // a node may have accepted token for it, before the others granted it another one
		return engine.Held{}, false, notHeld(resource, token)
	}
	ended := 0
	for _, r := range found {
		name := r.Name
		if r.Token == token && name == "" && r.Cause == scripts.Broken {
			name, ended = r.Ended, ended+1
		}
		if r.Token == token && name != "" {
			h, ok = leaseOf(name, r.Details, resource), true
			h.Token = token
		}
	}
	if !ok {
		return engine.Held{}, false, notHeld(resource, token)
	}
	return h, ended >= b.quorum, nil
}

// confirmBreak sends a break again, under the same version, after all nodes that confirmed it have recorded it. Only
// nodes whose addresses then still lead to their servers count: a server that takes the place of one of them was joined
// later, and the lease is over when it votes.
func (b *Backend) confirmBreak(h *engine.Held, under authority) *releasing {
	ctx, cancel := context.WithTimeout(b.ctx, 2*b.config.NodeTimeout)
	defer cancel()
	r := b.newReleasing(quorum.All(len(b.nodes)))
	r.under = under
	request := b.releaseRequest(h, scripts.Broken, scripts.WakeNext, true, r)
	b.each(func(i int, n *redisconn.Conn) {
		if err := n.Verify(ctx); err != nil {
			r.answered(redisconn.Reply{Err: err})
		} else {
			n.Send(request)
		}
	})
	return r
}
