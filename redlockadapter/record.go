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
		return nil, context.Cause(ctx)
	}
	return found, b.checkRead(errs)
}

// checkRead returns an error if fewer than a quorum of the nodes answered a read, or if one of them has seen a newer
// version. The others do not make up for that one: a lease may be on a bare quorum of the nodes.
func (b *Backend) checkRead(errs []error) error {
	answered := 0
	for _, err := range errs {
		if errors.Is(err, engine.ErrVersion) {
			b.keeper.notify()
			return b.versionError()
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

// holder returns the lease that a quorum of the records agree on, and how long a quorum
// will have it; ok is false if there is none. quorum.GrantedToken decides, unless this process
// was granted the lease.
func (b *Backend) holder(resource fencing.Resource, found []scripts.Record) (h engine.Held, left time.Duration,
	ok bool) {
	byName := map[string][]scripts.Record{}
	for _, r := range found {
		if r.Name != "" {
			byName[r.Name] = append(byName[r.Name], r)
		}
	}
	for name, same := range byName {
		if len(same) < b.quorum {
			continue
		}
		slices.SortFunc(same, func(x, y scripts.Record) int { return int(y.Left - x.Left) })
		h = leaseOf(name, same[0].Details, resource)
		if a := b.grants.find(name); a != nil {
			h.Token = a.Token
		} else {
			tokens := make([]fencing.Token, len(same))
			for i, r := range same {
				tokens[i] = r.Token
			}
			h.Token = quorum.GrantedToken(tokens, len(b.nodes))
		}
		if h.Token != fencing.None {
			return h, same[b.quorum-1].Left, true
		}
	}
	return engine.Held{}, 0, false
}

// Find reads a lease from the nodes. The error matches engine.ErrNotHeld if a quorum does
// not hold the lock with this token, and engine.ErrUnavailable if that cannot be told.
func (b *Backend) Find(ctx context.Context, resource fencing.Resource, token fencing.Token) (engine.Held, error) {
	found, err := b.records(ctx, resource)
	if err != nil {
		return engine.Held{}, err
	}
	if h, _, ok := b.holder(resource, found); ok && h.Token == token {
		return h, nil
	}
	if have := haveToken(found, token); have > 0 && have+len(b.nodes)-len(found) >= b.quorum {
		return engine.Held{}, fmt.Errorf("%w: %d of %d Redis nodes have the lease on %q with token %d, and %d did not answer",
			engine.ErrUnavailable, have, len(b.nodes), string(resource), token, len(b.nodes)-len(found))
	}
	return engine.Held{}, fmt.Errorf("%q: %w with token %d", string(resource), engine.ErrNotHeld, token)
}

// haveToken returns how many of the records have a lease with this token.
func haveToken(found []scripts.Record, token fencing.Token) (have int) {
	for _, r := range found {
		if r.Name != "" && r.Token == token {
			have++
		}
	}
	return have
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

// Break takes the lease with this token away from its holder.
func (b *Backend) Break(ctx context.Context, resource fencing.Resource, token fencing.Token) error {
	h, err := b.Find(ctx, resource, token)
	if err != nil {
		return fmt.Errorf("break: %w", err)
	}
	if a := b.grants.take(h.Name); a != nil {
		a.end()
		b.queues.lost(a)
	}
	if err = b.releaseEverywhere(&h, scripts.Broken).await(ctx); err == nil {
		b.debug("broken", &h)
	}
	return err
}
