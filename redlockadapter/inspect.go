package redlockadapter

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

// watchEvery is how often Watch looks. Redis tells nobody of a lock that expires.
const watchEvery = 50 * time.Millisecond

// record is what one node knows of a lock.
type record struct {
	name    string // of the attempt that holds the lock, empty if it is free
	left    time.Duration
	token   fencing.Token
	details string
	ended   string // the attempt that ended last by a release or a break
	cause   string // of ended
	waiters []string
}

func parseRecord(got reply) (record, error) {
	if got.word(0) == "empty" && len(got.words) == 1 {
		return record{}, errEmpty
	}
	if len(got.words) < 6 {
		return record{}, fmt.Errorf("%w: record %q", errProtocol, got.words)
	}
	w := got.words
	left, err := strconv.ParseInt(w[1], 10, 64)
	if err != nil {
		return record{}, fmt.Errorf("%w: time left %q", errProtocol, w[1])
	}
	token, err := fencing.ParseToken(w[2])
	if err != nil {
		return record{}, err
	}
	r := record{name: w[0], left: time.Duration(left) * time.Millisecond, token: token, details: w[3], ended: w[4], cause: w[5], waiters: w[6:]}
	if left == 0 {
		r.name = ""
	}
	return r, nil
}

// records asks all nodes what they know of a lock, and returns the answers of at
// least a majority.
func (b *Backend) records(ctx context.Context, resource fencing.Resource) ([]record, error) {
	if err := resource.Validate(); err != nil {
		return nil, err
	}
	var (
		mu   sync.Mutex
		seen []record
		errs = make([]error, len(b.nodes))
		left = len(b.nodes)
		done = make(chan struct{})
	)
	r := newRequest(inspectScript, keysOf([]fencing.Resource{resource}))
	r.answer = func(node int, got reply) {
		one, err := record{}, got.err
		if err == nil {
			one, err = parseRecord(got)
		}
		mu.Lock()
		defer mu.Unlock()
		if errs[node] = err; err == nil {
			seen = append(seen, one)
		}
		if left--; left == 0 {
			close(done)
		}
	}
	for _, n := range b.nodes {
		n.push(r)
	}
	select {
	case <-done:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if len(seen) < b.quorum {
		return nil, b.explain(errs)
	}
	return seen, nil
}

// find returns the lease that a majority of the records agree on, or false. Its
// time left is how long a majority will have it. Counters may differ, as that of a
// recovered node is ahead; the token is then the one that a majority has, or the one
// that this process was granted. Without either the lease cannot be told from an
// attempt that was not granted.
func (b *Backend) find(resource fencing.Resource, seen []record) (engine.Held, time.Duration, bool) {
	byName := map[string][]record{}
	for _, r := range seen {
		if r.name != "" {
			byName[r.name] = append(byName[r.name], r)
		}
	}
	for name, same := range byName {
		if len(same) < b.quorum {
			continue
		}
		slices.SortFunc(same, func(x, y record) int { return int(y.left - x.left) })
		d := parseDetails(same[0].details)
		h := engine.Held{Name: name, Resources: []fencing.Resource{resource}, TTL: time.Duration(d.TTL) * time.Millisecond,
			Holder: d.Holder, Metadata: d.Metadata, Token: b.agreed(same)}
		if len(d.Set) > 0 {
			h.Resources = d.Set
		}
		h.Session, h.Nonce = parseName(name)
		if a := b.granted.find(name); a != nil {
			h.Token = a.Token
		}
		if h.Token != fencing.None {
			return h, same[b.quorum-1].left, true
		}
	}
	return engine.Held{}, 0, false
}

// agreed returns the token that a majority has, or None.
func (b *Backend) agreed(same []record) fencing.Token {
	votes := map[fencing.Token]int{}
	for _, r := range same {
		if votes[r.token]++; votes[r.token] == b.quorum {
			return r.token
		}
	}
	return fencing.None
}

// Find reads a lease from the nodes. The error matches engine.ErrNotHeld if a
// majority does not hold the lock with this token.
func (b *Backend) Find(ctx context.Context, resource fencing.Resource, token fencing.Token) (engine.Held, error) {
	seen, err := b.records(ctx, resource)
	if err != nil {
		return engine.Held{}, err
	}
	if h, _, ok := b.find(resource, seen); ok && h.Token == token {
		return h, nil
	}
	return engine.Held{}, fmt.Errorf("%q: %w with token %d", string(resource), engine.ErrNotHeld, token)
}

// Inspect returns who holds the lock and who waits for it: all waiters of this
// process, and the first one of each other process.
func (b *Backend) Inspect(ctx context.Context, resource fencing.Resource) (engine.Status, error) {
	seen, err := b.records(ctx, resource)
	if err != nil {
		return engine.Status{}, err
	}
	return b.status(resource, seen), nil
}

func (b *Backend) status(resource fencing.Resource, seen []record) engine.Status {
	status := engine.Status{Resource: resource, Mode: engine.Efficiency, Waiters: b.queues.waiting(resource)}
	if h, left, ok := b.find(resource, seen); ok {
		status.Holders = []engine.Party{{Holder: h.Holder, Session: h.Session, Nonce: h.Nonce, Token: h.Token, Metadata: h.Metadata, TTL: left}}
	}
	others := map[string]bool{}
	for _, r := range seen {
		for _, w := range r.waiters {
			process, holder, _ := strings.Cut(w, " ")
			if process != b.process && !others[process] {
				others[process] = true
				status.Waiters = append(status.Waiters, engine.Party{Holder: holder})
			}
		}
	}
	return status
}

// Ended returns how a lease ended, as far as the nodes still know: "released" or
// "broken", or "expired" if neither is known.
func (b *Backend) Ended(ctx context.Context, resource fencing.Resource, session engine.SessionID, nonce engine.Nonce) (string, error) {
	seen, err := b.records(ctx, resource)
	if err != nil {
		return "", err
	}
	for _, r := range seen {
		if s, n := parseName(r.ended); s == session && n == nonce {
			return r.cause, nil
		}
	}
	return "expired", nil
}

// Watch calls changed with the present status, and again after each change.
func (b *Backend) Watch(ctx context.Context, resource fencing.Resource, changed func(engine.Status)) error {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	var last engine.Status
	for first := true; ; {
		status, err := b.Inspect(ctx, resource)
		switch {
		case err == nil:
			told := status
			told.Holders = slices.Clone(status.Holders)
			for i := range told.Holders {
				told.Holders[i].TTL = 0 // the passing of time is no change
			}
			if first || !reflect.DeepEqual(told, last) {
				changed(status)
			}
			first, last = false, told
		case ctx.Err() == nil && !errors.Is(err, engine.ErrUnavailable):
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Break takes the lease with this token away from its holder.
func (b *Backend) Break(ctx context.Context, resource fencing.Resource, token fencing.Token) error {
	if !token.Valid() {
		return fmt.Errorf("%w: break %q: %d is no token", engine.ErrInvalid, string(resource), token)
	}
	h, err := b.Find(ctx, resource, token)
	if err != nil {
		return fmt.Errorf("break: %w", err)
	}
	if a := b.granted.take(h.Name); a != nil {
		a.end()
		b.queues.lost(a)
	}
	err = b.releaseHeld(ctx, &h, causeBroken)
	b.mu.Lock()
	s := b.sessions[h.Session]
	b.mu.Unlock()
	if s != nil {
		s.lose(h.Nonce, fmt.Errorf("%w: broken by an operator", engine.ErrTaken))
	}
	return err
}
