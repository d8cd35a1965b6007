package redlockadapter

import (
	"cmp"
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

// sighting is what one node says of a holder.
type sighting struct {
	name, info string
	left       time.Duration
	counter    fencing.Token
}

// parseSightings reads the answer of the inspect script: who has the lock alone,
// and who shares it.
func parseSightings(text string) ([]sighting, error) {
	var all []sighting
	for _, part := range strings.Split(text, "\x00") {
		counter, rest, held := strings.Cut(part, " ")
		if counter == "" {
			continue
		}
		token, err := fencing.ParseToken(counter)
		if err != nil {
			return nil, fmt.Errorf("node answered %q: %w", text, err)
		}
		if held {
			s := sighting{counter: token}
			left, body, _ := strings.Cut(rest, " ")
			s.name, s.info, _ = strings.Cut(body, "\n")
			millis, _ := strconv.ParseInt(left, 10, 64)
			s.left = time.Duration(millis) * time.Millisecond
			all = append(all, s)
		}
	}
	return all, nil
}

// body is what the node has of the holder.
func (s sighting) body() string { return s.name + "\n" + s.info }

// look asks all nodes what they know of a lock.
func (b *Backend) look(ctx context.Context, resource fencing.Resource) ([][]sighting, error) {
	if err := resource.Validate(); err != nil {
		return nil, err
	}
	var (
		mu   sync.Mutex
		seen [][]sighting
		errs []error
		left = len(b.lanes)
		done = make(chan struct{})
	)
	o := &op{script: inspectScript, args: newArgs(lockOf(resource))}
	o.answer = func(_ int, got answer) {
		mu.Lock()
		defer mu.Unlock()
		s, err := parseSightings(got.text)
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

// holders are those whom a majority has, each with one token, in the order of
// their tokens. left is how long a majority will have them. Counters may differ, as
// that of a node that was emptied is ahead: then the token is the one that a
// majority agrees on, or that this process was granted. If neither is known it
// cannot be told from an attempt that was never granted, and is left out.
func (b *Backend) holders(seen [][]sighting) []sighting {
	names := map[string][]sighting{}
	for _, node := range seen {
		for _, s := range node {
			names[s.name] = append(names[s.name], s)
		}
	}
	var all []sighting
	for name, same := range names {
		if len(same) < b.quorum {
			continue
		}
		slices.SortFunc(same, func(x, y sighting) int { return cmp.Compare(x.left, y.left) })
		one := same[len(same)-b.quorum]
		if one.counter = b.agreed(same); one.counter == fencing.None {
			if a := b.holding(name); a != nil {
				one.counter = a.token
			}
		}
		if one.counter != fencing.None {
			all = append(all, one)
		}
	}
	slices.SortFunc(all, func(x, y sighting) int { return cmp.Compare(x.counter, y.counter) })
	return all
}

// agreed is the counter that a majority has, None if there is none.
func (b *Backend) agreed(same []sighting) fencing.Token {
	votes := map[fencing.Token]int{}
	for _, s := range same {
		if votes[s.counter]++; votes[s.counter] == b.quorum {
			return s.counter
		}
	}
	return fencing.None
}

// Inspect tells who holds the lock.
func (b *Backend) Inspect(ctx context.Context, resource fencing.Resource) (lease.Status, error) {
	seen, err := b.look(ctx, resource)
	if err != nil {
		return lease.Status{}, err
	}
	status := lease.Status{Resource: resource, Mode: lease.Efficiency}
	for _, s := range b.holders(seen) {
		status.Holders = append(status.Holders, s.party())
	}
	return status, nil
}

func (s sighting) party() lease.Party {
	id, nonce, _ := strings.Cut(s.name, ":")
	nonce, _, _ = strings.Cut(nonce, ".")
	session, _ := lease.ParseSessionID(id)
	number, _ := strconv.ParseUint(nonce, 10, 64)
	lines := strings.SplitN(s.info, "\n", 3)
	c := s.claim()
	p := lease.Party{Session: session, Nonce: lease.Nonce(number), Kind: c.kind, Slot: c.slot, Token: s.counter, TTL: s.left}
	if len(lines) == 3 {
		p.Holder = lines[1]
		p.Metadata = decodeMetadata(lines[2])
	}
	return p
}

// ttl is the TTL that the holder asked for.
func (s sighting) ttl() time.Duration {
	line, _, _ := strings.Cut(s.info, "\n")
	text, _, _ := strings.Cut(line, " ")
	millis, _ := strconv.ParseInt(text, 10, 64)
	return time.Duration(millis) * time.Millisecond
}

// claim is what the holder has.
func (s sighting) claim() claim {
	line, _, _ := strings.Cut(s.info, "\n")
	_, text, _ := strings.Cut(line, " ")
	return parseClaim(text)
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
			told.Holders = slices.Clone(status.Holders)
			for i := range told.Holders {
				told.Holders[i].TTL = 0 // time passing is no change
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
	holders := b.holders(seen)
	i := slices.IndexFunc(holders, func(s sighting) bool { return s.counter == token })
	if i < 0 {
		return fmt.Errorf("break %q: %w with token %d", string(resource), lease.ErrNotHeld, token)
	}
	s := holders[i]
	if a := b.holding(s.name); a != nil {
		defer a.session.lose(a, fmt.Errorf("%w: broken by an operator", lease.ErrTaken))
	}
	f := newFarewell(len(b.lanes), b.quorum)
	o := &op{script: releaseScript, answer: f.answered, args: newArgs(
		s.claim().after("*1 "+tombLife(max(s.ttl(), b.config.MaxTTL))+" "+wakeNext), lockOf(resource), s.body())}
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
