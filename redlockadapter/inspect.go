package redlockadapter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease"
)

// watchEvery is how often Watch looks. Redis tells nobody of a lock that
// expires, so there is no way around looking.
const watchEvery = 50 * time.Millisecond

// sighting is what one node says of a lock.
type sighting struct {
	name, info string // "" if the lock is free
	left       time.Duration
	counter    fencing.Token
}

// parseSighting reads the answer of the inspect script.
func parseSighting(text string) (s sighting, err error) {
	counter, rest, held := strings.Cut(text, " ")
	if counter != "" {
		if s.counter, err = fencing.ParseToken(counter); err != nil {
			return sighting{}, fmt.Errorf("node answered %q: %w", text, err)
		}
	}
	if held {
		left, body, _ := strings.Cut(rest, " ")
		s.name, s.info, _ = strings.Cut(body, "\n")
		millis, _ := strconv.ParseInt(left, 10, 64)
		s.left = time.Duration(millis) * time.Millisecond
	}
	return s, nil
}

// body is what the node has of the holder.
func (s sighting) body() string { return s.name + "\n" + s.info }

// look asks all nodes what they know of a lock.
func (b *Backend) look(ctx context.Context, resource fencing.Resource) ([]sighting, error) {
	if err := resource.Validate(); err != nil {
		return nil, err
	}
	var (
		mu   sync.Mutex
		seen []sighting
		errs []error
		left = len(b.lanes)
		done = make(chan struct{})
	)
	o := &op{script: inspectScript, args: newArgs(lockOf(resource))}
	o.answer = func(_ int, got answer) {
		mu.Lock()
		defer mu.Unlock()
		s, err := parseSighting(got.text)
		if err = errors.Join(got.err, err); err != nil {
			errs = append(errs, err)
		} else {
			seen = append(seen, s)
		}
		if left--; left == 0 {
			close(done)
		}
	}
	for _, l := range b.lanes {
		l.push(o)
	}
	select {
	case <-done:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if len(seen) < b.quorum {
		return nil, fmt.Errorf("%w: %d of %d Redis nodes tell: %w", lease.ErrUnavailable, len(seen), len(b.lanes), errors.Join(errs...))
	}
	return seen, nil
}

// holder is the one whom a majority has, with one token; ok is false if there is
// none. left is how long a majority will have it.
func (b *Backend) holder(seen []sighting) (s sighting, ok bool) {
	for _, candidate := range seen {
		if candidate.name == "" {
			continue
		}
		var left []time.Duration
		for _, other := range seen {
			if other.name == candidate.name && other.counter == candidate.counter {
				left = append(left, other.left)
			}
		}
		if len(left) >= b.quorum {
			slices.Sort(left)
			candidate.left = left[len(left)-b.quorum]
			return candidate, true
		}
	}
	return sighting{}, false
}

// Inspect tells who holds the lock.
func (b *Backend) Inspect(ctx context.Context, resource fencing.Resource) (lease.Status, error) {
	seen, err := b.look(ctx, resource)
	if err != nil {
		return lease.Status{}, err
	}
	status := lease.Status{Resource: resource, Mode: lease.Efficiency}
	if s, ok := b.holder(seen); ok {
		status.Holders = []lease.Party{s.party()}
	}
	return status, nil
}

func (s sighting) party() lease.Party {
	id, nonce, _ := strings.Cut(s.name, ":")
	nonce, _, _ = strings.Cut(nonce, ".")
	session, _ := lease.ParseSessionID(id)
	number, _ := strconv.ParseUint(nonce, 10, 64)
	lines := strings.SplitN(s.info, "\n", 3)
	p := lease.Party{Session: session, Nonce: lease.Nonce(number), Kind: lease.Exclusive, Token: s.counter, TTL: s.left}
	if len(lines) == 3 {
		p.Holder = lines[1]
		p.Metadata = decodeMetadata(lines[2])
	}
	return p
}

// ttl is the TTL that the holder asked for.
func (s sighting) ttl() time.Duration {
	text, _, _ := strings.Cut(s.info, "\n")
	millis, _ := strconv.ParseInt(text, 10, 64)
	return time.Duration(millis) * time.Millisecond
}

// Watch looks again and again, and tells what has changed.
func (b *Backend) Watch(ctx context.Context, resource fencing.Resource, changed func(lease.Status)) error {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	var last lease.Status
	for first := true; ; {
		status, err := b.Inspect(ctx, resource)
		switch {
		case err == nil:
			told := status
			if len(status.Holders) > 0 { // time passing is no change
				told.Holders = slices.Clone(status.Holders)
				told.Holders[0].TTL = 0
			}
			if first || !reflect.DeepEqual(told, last) {
				changed(status)
			}
			first, last = false, told
		case ctx.Err() == nil && !errors.Is(err, lease.ErrUnavailable):
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Break takes the lease with this token away from its holder. A tombstone for as
// long as the holder's TTL refuses its renewals, which would else take the lock
// back.
func (b *Backend) Break(ctx context.Context, resource fencing.Resource, token fencing.Token) error {
	if !token.Valid() {
		return fmt.Errorf("%w: break %q: %d is no token", lease.ErrInvalid, string(resource), token)
	}
	seen, err := b.look(ctx, resource)
	if err != nil {
		return err
	}
	s, ok := b.holder(seen)
	if !ok || s.counter != token {
		return fmt.Errorf("break %q: %w with token %d", string(resource), lease.ErrNotHeld, token)
	}
	lock := lockOf(resource)
	if a := b.holding(lock, s.name, token); a != nil {
		defer a.session.lose(a, fmt.Errorf("%w: broken by an operator", lease.ErrTaken))
	}
	f := newFarewell(len(b.lanes), b.quorum)
	o := &op{script: releaseScript, answer: f.answered,
		args: newArgs("*1 "+tombLife(max(s.ttl(), b.config.MaxTTL))+" "+wakeNext, lock, s.body())}
	for _, l := range b.lanes {
		l.push(o)
	}
	return f.await(ctx)
}

func encodeMetadata(metadata map[string]string) string {
	if len(metadata) == 0 {
		return ""
	}
	text, err := json.Marshal(metadata)
	if err != nil {
		panic(err) // a map of strings can be written
	}
	return string(text)
}

func decodeMetadata(text string) map[string]string {
	if text == "" {
		return nil
	}
	var metadata map[string]string
	if json.Unmarshal([]byte(text), &metadata) != nil {
		return nil // written by something else; it is for people only
	}
	return metadata
}
