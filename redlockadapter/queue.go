package redlockadapter

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/leased-project/leased/lease"
)

const (
	// maxStreak is how many times in a row a lock is passed on inside one
	// process before others get a chance.
	maxStreak = 64
	// maxTurn is how long a process may go on with that: callers that hold a lock
	// for long pass it on less often.
	maxTurn = 50 * time.Millisecond
	// yieldPause is how long this process then stands back, if someone else was
	// woken.
	yieldPause = 25 * time.Millisecond
	// wakeGrace is how long a first wake-up waits for those of the other nodes.
	wakeGrace = 3 * time.Millisecond
	// maxSleep bounds how long a waiter relies on being woken. Wake-ups are hints
	// and can be lost with a connection; a few questions a second cost little.
	maxSleep = 200 * time.Millisecond
	// maxJitter spreads those whose timers end at the same time.
	maxJitter = 10 * time.Millisecond
)

// queues know who in this process waits for which lock, and who holds it. Only
// the first waiter of a lock asks the nodes; the others queue behind it, in
// order. A waiter for a set is in the queues of all its locks, and asks when it
// is first in each. It cannot deadlock: the one who came first is first
// everywhere.
type queues struct {
	backend *Backend

	mu    sync.Mutex
	locks map[string]*queue
}

// queue is what is known of one lock. It exists while there is something to
// know.
type queue struct {
	holder  *attempt      // of this process, if it holds the lock
	asked   lease.Instant // since then a TTL has to pass before the nodes are asked whether it still does
	waiters []*waiter
	streak  int           // handed on inside the process so many times in a row
	since   lease.Instant // when the process got it, before the streak
	notYet  lease.Instant // others go first
}

// waiter is one call of Acquire that waits. Its fields are guarded by the mu of
// queues.
type waiter struct {
	locks  []string
	signal chan struct{} // look again
	woken  uint64        // the nodes that said that the lock is free
	tried  bool          // it has asked the nodes, and knows that others hold
	retry  lease.Instant // when to ask again if nobody says anything
}

func newQueues(b *Backend) *queues { return &queues{backend: b, locks: map[string]*queue{}} }

// newTicket is what the nodes know a waiter by: since when it waits. The clocks
// of processes need not agree: it decides only who is woken first.
func newTicket(process string) string {
	return fmt.Sprintf("%015d-%s", wallClock().UnixMicro()%1e15, process)
}

func (w *waiter) poke() {
	select {
	case w.signal <- struct{}{}:
	default:
	}
}

// of is the queue of a lock, made if there is none. The caller holds mu.
func (q *queues) of(lock string) *queue {
	one := q.locks[lock]
	if one == nil {
		one = &queue{}
		q.locks[lock] = one
	}
	return one
}

// tidy forgets a queue that is of no use. The caller holds mu.
func (q *queues) tidy(lock string) {
	if one := q.locks[lock]; one != nil && one.holder == nil && len(one.waiters) == 0 {
		delete(q.locks, lock)
	}
}

// held notes that this process holds the locks of a.
func (q *queues) held(a *attempt) {
	now := q.backend.clock.Now()
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, lock := range a.locks {
		one := q.of(lock)
		one.holder, one.asked, one.notYet = a, now, lease.Instant{}
		if one.streak == 0 {
			one.since = now
		}
	}
}

func (q *queues) join(locks []string) *waiter {
	w := &waiter{locks: locks, signal: make(chan struct{}, 1)}
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, lock := range locks {
		one := q.of(lock)
		one.waiters = append(one.waiters, w)
	}
	return w
}

// leave takes w out and has those behind it look again.
func (q *queues) leave(w *waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, lock := range w.locks {
		one := q.locks[lock]
		first := one.waiters[0] == w
		one.waiters = slices.DeleteFunc(one.waiters, func(other *waiter) bool { return other == w })
		if first && len(one.waiters) > 0 {
			one.waiters[0].poke()
		}
		q.tidy(lock)
	}
}

// ready says how long w must wait before it may ask the nodes: 0 if it may now.
// While this process holds the lock itself there is little to ask: its release
// will say so. But the holder may be lost without one, so that the nodes are
// asked once in a TTL, whoever waits then.
func (q *queues) ready(w *waiter) time.Duration {
	now := q.backend.clock.Now()
	q.mu.Lock()
	defer q.mu.Unlock()
	nap := time.Duration(0)
	for _, lock := range w.locks {
		one := q.locks[lock]
		if one.waiters[0] != w {
			return time.Hour // it is poked when its turn comes
		}
		if one.holder != nil {
			nap = max(nap, now.Until(one.asked.Add(one.holder.session.ttl)))
		}
		nap = max(nap, now.Until(one.notYet))
	}
	if w.tried && bits.OnesCount64(w.woken) < q.backend.quorum {
		nap = max(nap, now.Until(w.retry))
	}
	if nap > 0 {
		return nap
	}
	for _, lock := range w.locks {
		q.locks[lock].asked = now
	}
	w.woken, w.tried = 0, false
	return 0
}

// put off notes that w has asked in vain, and when to ask again at the latest.
func (q *queues) putOff(w *waiter, d time.Duration) {
	now := q.backend.clock.Now()
	q.mu.Lock()
	defer q.mu.Unlock()
	w.tried, w.retry = true, now.Add(d)
}

// release ends a grant. If someone waits in this process the lock is passed on
// to it directly: its acquire follows the release in every lane, which is one
// round trip, and nobody else is woken. Every so often others go first: till it is
// known whether there are any, nobody of this process may ask.
func (q *queues) release(a *attempt) *farewell {
	now := q.backend.clock.Now()
	q.mu.Lock()
	var next *waiter
	for _, lock := range a.locks {
		one := q.locks[lock]
		if one == nil || one.holder != a {
			continue
		}
		one.holder = nil
		if len(one.waiters) > 0 {
			next = one.waiters[0]
			one.streak++
		}
		if one.streak >= maxStreak || now.Since(one.since) >= maxTurn || len(a.locks) > 1 || next != nil && len(next.locks) > 1 {
			next, one.streak, one.notYet = nil, 0, now.Add(yieldPause)
		}
		q.tidy(lock)
	}
	if next != nil {
		next.tried = false // what it heard from the nodes is over: it may ask at once
	}
	q.mu.Unlock()

	if next != nil {
		return a.handOn(next)
	}
	f := a.release(wakeNext)
	q.pokeFirst(a.locks, f)
	return f
}

// pokeFirst has the first waiters of some locks look again, once it is known
// whether someone in another process was woken, who then goes first.
func (q *queues) pokeFirst(locks []string, f *farewell) {
	q.mu.Lock()
	waited := slices.ContainsFunc(locks, func(lock string) bool { return q.locks[lock] != nil })
	q.mu.Unlock()
	if !waited {
		return
	}
	go func() {
		<-f.done
		f.mu.Lock()
		woken := f.woken
		f.mu.Unlock()
		now := q.backend.clock.Now()
		q.mu.Lock()
		defer q.mu.Unlock()
		for _, lock := range locks {
			one := q.locks[lock]
			if one == nil || len(one.waiters) == 0 {
				continue
			}
			first := one.waiters[0]
			one.notYet = lease.Instant{}
			switch {
			case !woken:
				first.tried = false // nobody else will take it
			case first.woken == 0 && one.holder == nil:
				one.notYet = now.Add(yieldPause)
			}
			first.poke()
		}
	}()
}

// freed is told by a node that a lock is free there and that this process is the
// next. A wake-up that nobody needs is passed on.
func (q *queues) freed(node int, lock string) {
	q.mu.Lock()
	one := q.locks[lock]
	if one == nil || len(one.waiters) == 0 {
		mine := one != nil && one.holder != nil
		q.mu.Unlock()
		if !mine {
			q.backend.passOn(node, lock)
		}
		return
	}
	defer q.mu.Unlock()
	w := one.waiters[0]
	first := w.woken == 0
	w.woken |= 1 << node
	switch {
	case bits.OnesCount64(w.woken) >= q.backend.quorum:
		one.notYet = lease.Instant{} // it is the turn of this process
		w.poke()
	case first:
		time.AfterFunc(wakeGrace, func() {
			q.mu.Lock()
			defer q.mu.Unlock()
			if w.woken != 0 {
				w.retry, one.notYet = lease.Instant{}, lease.Instant{}
				w.poke()
			}
		})
	}
}

// acquireInTurn waits for the turn of this request in the process, and then for
// the lock.
func (s *session) acquireInTurn(ctx context.Context, request *lease.Request, e *entry) (*attempt, error) {
	q := s.backend.queues
	w := q.join(locksOf(request.Resources))
	defer q.leave(w)
	splits, ticket := 0, "" // who finds the lock free needs none
	for {
		nap := q.ready(w)
		if nap == 0 {
			a, err := s.try(ctx, request, e, ticket)
			var lost *lostAttempt
			switch {
			case err == nil:
				return a, nil
			case ticket == "" && errors.As(err, &lost) && errors.Is(err, lease.ErrHeld):
				ticket = newTicket(s.backend.process)
				continue
			case errors.Is(err, errSplit):
				q.putOff(w, splitPause(splits))
				splits++
			case errors.As(err, &lost) && errors.Is(err, lease.ErrHeld):
				q.putOff(w, min(lost.freeAfter, maxSleep+rand.N(maxSleep))+time.Millisecond+rand.N(maxJitter))
				splits = 0
			default:
				return nil, err
			}
			nap = q.ready(w)
		}
		if request.Queued != nil && nap > 0 {
			request.Queued()
			request.Queued = nil
		}
		if err := s.nap(ctx, w, e, request.Nonce, nap); err != nil {
			return nil, err
		}
	}
}

// nap waits until w is poked, or for some time, unless its attempt or the
// context ends.
func (s *session) nap(ctx context.Context, w *waiter, e *entry, nonce lease.Nonce, d time.Duration) error {
	timer := startTimer(d)
	defer stopTimer(timer)
	select {
	case <-w.signal:
	case <-timer.C:
	case <-s.goneOf(e):
		return attemptEnded(nonce)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}
