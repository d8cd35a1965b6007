package lease

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/leased-project/leased/lease/engine"
)

const (
	// maxNap bounds how late a keeper notices time that its timers did not see
	// pass, because the machine was suspended.
	maxNap = time.Second
	// maxCleanup bounds one call that tells the service of a release.
	maxCleanup = 5 * time.Second
)

// keeper keeps one session alive, and with it every hold and every attempt in
// it. One goroutine serves any number of holds.
//
// A hold is valid until its deadline: validity after the last keep-alive that
// covers it was sent (it is settled then), or after its own request was sent.
// What ends here but perhaps not at the service is discarded: released in the
// background until the service confirms.
type keeper struct {
	client *Client
	id     engine.SessionID
	timing timing
	fixed  bool // serves one lease, and does not renew once it is granted

	opening  chan struct{} // held while the session is being opened
	renewing chan struct{} // held while a keep-alive is under way
	wake     chan struct{} // tells run to look again

	mu       sync.Mutex
	session  engine.Session // nil until opened
	nonces   engine.Nonce   // the last one given out
	users    int            // acquisitions under way, including their pauses
	asking   map[engine.Nonce]error
	holds    map[engine.Nonce]*hold
	young    map[engine.Nonce]*hold // holds that are not settled
	discards map[engine.Nonce]bool  // true while a release is under way
	renewed  engine.Instant         // before the last answered keep-alive was sent
	tried    engine.Instant         // before the last keep-alive was sent
	failing  bool                   // the last keep-alive failed
	round    uint64                 // keep-alives begun
	used     engine.Instant         // when there was last a hold or a user
	gone     error                  // why the session is over, nil while it lives
}

func newKeeper(c *Client, t timing, fixed bool) *keeper {
	return &keeper{
		client: c, id: engine.NewSessionID(), timing: t, fixed: fixed,
		opening: make(chan struct{}, 1), renewing: make(chan struct{}, 1), wake: make(chan struct{}, 1),
		asking: map[engine.Nonce]error{}, holds: map[engine.Nonce]*hold{}, young: map[engine.Nonce]*hold{}, discards: map[engine.Nonce]bool{},
	}
}

// open makes sure that the session exists. Callers that come while one of them
// is opening it wait for that, and try themselves if it failed.
func (k *keeper) open(ctx context.Context) error {
	select {
	case k.opening <- struct{}{}:
		defer func() { <-k.opening }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	k.mu.Lock()
	ready := k.session != nil
	k.mu.Unlock()
	if ready {
		return nil
	}
	sent := k.client.clock.Now()
	session, err := k.client.backend.Open(ctx, engine.SessionConfig{ID: k.id, TTL: k.timing.ttl, Clock: k.client.clock, Lost: k.lost})
	if err != nil {
		return fmt.Errorf("open session: %w", err)
	}
	k.mu.Lock()
	k.session, k.renewed, k.tried, k.used = session, sent, sent, sent
	k.mu.Unlock()
	k.client.background(k.run)
	return nil
}

// newNonce begins an attempt. endAttempt must follow, or adopt.
func (k *keeper) newNonce() engine.Nonce {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.nonces++
	k.asking[k.nonces] = nil
	return k.nonces
}

// endAttempt gives up an attempt. Unless err is a certain refusal the service
// is told, lest it grants what nobody waits for.
func (k *keeper) endAttempt(nonce engine.Nonce, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.asking, nonce)
	if !refusal(err) {
		k.discard(nonce)
	}
}

// adopt makes a grant a hold with one lease, if it is worth anything by now.
func (k *keeper) adopt(ctx context.Context, h *hold) (*Lease, error) {
	now := k.client.clock.Now()
	k.mu.Lock()
	defer k.mu.Unlock()
	h.round, h.since = k.round, now
	err := k.asking[h.nonce]
	switch {
	case k.gone != nil:
		err = k.gone
	case err != nil: // the service took it away before it arrived here
	case !h.grant.Token.Valid():
		err = fmt.Errorf("%w: the service granted the token %d", engine.ErrUncertain, h.grant.Token)
	case h.request.Mode != engine.AnyMode && h.grant.Mode != h.request.Mode:
		err = &engine.ModeError{Resource: h.named, Want: h.request.Mode, Have: h.grant.Mode}
	case now.Until(k.deadline(h)) <= 0:
		err = fmt.Errorf("%w before it arrived", engine.ErrExpired)
	}
	delete(k.asking, h.nonce)
	if err != nil {
		k.discard(h.nonce)
		return nil, err
	}
	k.holds[h.nonce] = h
	k.young[h.nonce] = h
	if now.Until(k.deadline(h)) < maxNap {
		k.poke() // else run wakes up in time anyway
	}
	return newLease(ctx, h), nil
}

// deadline is when h ends if nothing more is renewed. The caller holds mu.
func (k *keeper) deadline(h *hold) engine.Instant {
	from := h.sent
	if h.settled {
		from = k.renewed
	}
	return from.Add(k.timing.validity())
}

// check is why l has ended, nil if it has not. It reads the clock itself, so
// that it is right also when the timers are late.
func (k *keeper) check(l *Lease) error {
	now := k.client.clock.Now()
	k.mu.Lock()
	ended := k.expire(now, l.hold)
	err := l.hold.ended
	if l.released {
		err = engine.ErrReleased
	}
	k.mu.Unlock()
	k.tell(now, ended)
	return err
}

// expire ends those of the candidates whose deadline has passed. The caller
// holds mu, and calls tell with the result after it.
func (k *keeper) expire(now engine.Instant, candidates ...*hold) []*hold {
	var ended []*hold
	for _, h := range candidates {
		if h.ended == nil && now.Until(k.deadline(h)) <= 0 {
			k.end(h, engine.ErrExpired)
			k.discard(h.nonce)
			ended = append(ended, h)
		}
	}
	return ended
}

// end takes h out of the books. The caller holds mu.
func (k *keeper) end(h *hold, err error) {
	h.ended = err
	delete(k.holds, h.nonce)
	delete(k.young, h.nonce)
}

// tell ends the contexts of lost holds, all of them, and then reports them: a
// slow hook must not keep a context open. Called without mu.
func (k *keeper) tell(now engine.Instant, lost []*hold) {
	leases := make([]int, len(lost))
	for i, h := range lost {
		leases[i] = h.finish()
	}
	for i, h := range lost {
		for range leases[i] {
			emit(k.client.hooks.Lost, h.event(now, h.ended))
		}
	}
}

// finish ends the contexts of the leases of an ended hold, and says how many
// there were.
func (h *hold) finish() int {
	k := h.keeper
	k.mu.Lock()
	leases, cause := h.leases, h.ended
	h.leases = nil
	k.mu.Unlock()
	for _, l := range leases {
		l.cancel(cause)
	}
	k.client.holders.forget(h)
	return len(leases)
}

// lost is told by the backend that an attempt has ended at the service.
func (k *keeper) lost(nonce engine.Nonce, err error) {
	if !errors.Is(err, engine.ErrLost) {
		err = fmt.Errorf("%w: %w", engine.ErrNotHeld, err)
	}
	k.mu.Lock()
	h := k.holds[nonce]
	if h != nil {
		k.end(h, err)
	} else if _, ok := k.asking[nonce]; ok {
		k.asking[nonce] = err
	}
	k.mu.Unlock()
	if h != nil {
		k.tell(k.client.clock.Now(), []*hold{h})
	}
}

// over ends the session and every hold in it.
func (k *keeper) over(err error) {
	k.client.drop(k)
	k.mu.Lock()
	if k.gone == nil {
		k.gone = err
	}
	ended := make([]*hold, 0, len(k.holds))
	for _, h := range k.holds {
		ended = append(ended, h)
	}
	for _, h := range ended {
		k.end(h, err)
	}
	clear(k.discards)
	k.mu.Unlock()
	k.tell(k.client.clock.Now(), ended)
	k.poke()
}

// discard has an attempt released in the background. The caller holds mu.
func (k *keeper) discard(nonce engine.Nonce) {
	if k.gone == nil && k.session != nil {
		k.discards[nonce] = false
		k.poke()
	}
}

// poke makes run look again. Safe with and without mu.
func (k *keeper) poke() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

func (k *keeper) isGone() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.gone != nil
}
