package redlockadapter

import (
	"slices"
	"sync"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/redlockadapter/scripts"
)

const (
	// maxHandovers is how many times in a row a lock is handed over inside a process
	// before other processes get a chance.
	maxHandovers = 64
	// maxHandoverTime bounds the time of these handovers: callers that hold a lock for
	// long hand it over less often.
	maxHandoverTime = 50 * time.Millisecond
	// yieldPause is how long this process then does not contend for the lock, if another
	// process was woken.
	yieldPause = 25 * time.Millisecond
	// wakeGrace is how long a waiter that was woken by one node waits for wake-ups from other nodes.
	wakeGrace = 3 * time.Millisecond
	// pollHeld is how often a waiter asks the nodes while its own process holds the
	// lock: another process may release or break the lease.
	pollHeld = 250 * time.Millisecond
)

// queues has the waiters of this process, and the locks that it holds. Only the first
// waiter of a lock contends for it on the nodes; the others queue behind it, in order. A
// waiter for a set is in the queue of each of its locks, and contends when it is the
// first in all of them. That cannot deadlock: the earliest waiter is first everywhere.
type queues struct {
	backend *Backend

	mu    sync.Mutex
	locks map[fencing.Resource]*queue
}

// queue is the queue of one lock. It exists while the lock has a holder or waiters in
// this process.
type queue struct {
	holder     *attempt // of this process, if it holds the lock
	waiters    []*waiter
	polled     engine.Instant // when a waiter last asked the nodes while this process held the lock
	handovers  int            // inside the process, in a row
	since      engine.Instant // when the process got the lock, before the handovers
	yieldUntil engine.Instant // other processes go first until then
}

// of returns the queue of a lock, a new one if there is none. The caller holds mu.
func (q *queues) of(lock fencing.Resource) *queue {
	if q.locks[lock] == nil {
		q.locks[lock] = &queue{}
	}
	return q.locks[lock]
}

// dropUnused removes a queue without a holder and waiters. The caller holds mu.
func (q *queues) dropUnused(lock fencing.Resource) {
	if one := q.locks[lock]; one.holder == nil && len(one.waiters) == 0 {
		delete(q.locks, lock)
	}
}

// heldBy returns the queue of a lock if a holds it, else nil. The caller holds mu.
func (q *queues) heldBy(a *attempt, lock fencing.Resource) *queue {
	if one := q.locks[lock]; one != nil && one.holder == a {
		return one
	}
	return nil
}

// held records that this process holds the locks of a.
func (q *queues) held(a *attempt, now engine.Instant) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, lock := range a.Resources {
		one := q.of(lock)
		one.holder, one.polled, one.yieldUntil = a, now, engine.Instant{}
		if one.handovers == 0 {
			one.since = now
		}
	}
}

// lost records that this process no longer holds the locks of a, and wakes the first
// waiters.
func (q *queues) lost(a *attempt) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, lock := range a.Resources {
		one := q.heldBy(a, lock)
		if one == nil {
			continue
		}
		one.holder = nil
		if len(one.waiters) > 0 {
			one.waiters[0].wake()
		}
		q.dropUnused(lock)
	}
}

// join appends a waiter to the queues of its locks.
func (q *queues) join(want engine.Held) *waiter {
	w := &waiter{want: want, since: q.backend.clock.Now().Time(), signal: make(chan struct{}, 1)}
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, lock := range want.Resources {
		one := q.of(lock)
		one.waiters = append(one.waiters, w)
	}
	return w
}

// leave removes a waiter and wakes the one behind it.
func (q *queues) leave(w *waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, lock := range w.want.Resources {
		one := q.locks[lock]
		first := one.waiters[0] == w
		one.waiters = slices.DeleteFunc(one.waiters, func(other *waiter) bool { return other == w })
		if first && len(one.waiters) > 0 {
			one.waiters[0].wake()
		}
		q.dropUnused(lock)
	}
}

// waiting returns the waiters of a lock in this process, in order.
func (q *queues) waiting(lock fencing.Resource) []engine.Party {
	q.mu.Lock()
	defer q.mu.Unlock()
	var parties []engine.Party
	if one := q.locks[lock]; one != nil {
		for _, w := range one.waiters {
			parties = append(parties, engine.Party{Holder: w.want.Holder, User: w.want.User, Session: w.want.Session,
				Nonce: w.want.Nonce, Metadata: w.want.Metadata,
				Since: w.since})
		}
	}
	return parties
}

// contend returns how long w must wait before it contends for its locks; 0 if it may now.
// While this process holds a lock, the release wakes the waiter, and the nodes are polled
// only in case the lease ends in another way.
func (q *queues) contend(w *waiter) time.Duration {
	now := q.backend.clock.Now()
	q.mu.Lock()
	defer q.mu.Unlock()
	woken := w.wokenBy.Count() >= q.backend.quorum
	wait := time.Duration(0)
	for _, lock := range w.want.Resources {
		one := q.locks[lock]
		if one.waiters[0] != w {
			return time.Hour // the waiter ahead wakes it
		}
		if one.holder != nil && !woken {
			wait = max(wait, now.Until(one.polled.Add(min(one.holder.TTL, pollHeld))))
		}
		wait = max(wait, now.Until(one.yieldUntil))
	}
	if w.refused && !woken {
		wait = max(wait, now.Until(w.retryAt))
	}
	if wait > 0 {
		return wait
	}
	for _, lock := range w.want.Resources {
		q.locks[lock].polled = now
	}
	w.wokenBy, w.refused = 0, false
	return 0
}

// postpone records that w was refused, and must not contend for d unless it is woken.
func (q *queues) postpone(w *waiter, d time.Duration) {
	now := q.backend.clock.Now()
	q.mu.Lock()
	defer q.mu.Unlock()
	w.refused, w.retryAt, w.freed = true, now.Add(d), engine.Instant{}
}

// handedOff reports that w got its lock, if a holder of this process had released it.
func (q *queues) handedOff(w *waiter) {
	hook := q.backend.config.Hooks.HandedOff
	if hook == nil {
		return
	}
	q.mu.Lock()
	freed := w.freed
	q.mu.Unlock()
	if !freed.IsZero() {
		hook(q.backend.clock.Now().Since(freed))
	}
}

// release ends a grant. If the lock has a waiter in this process it is handed over
// directly: the acquire follows the release on every connection, and no other process is
// woken. Every so often other processes go first: this process does not contend until the
// release has shown whether there are any.
func (q *queues) release(a *attempt) *releasing {
	now := q.backend.clock.Now()
	q.mu.Lock()
	var next *waiter
	for _, lock := range a.Resources {
		one := q.heldBy(a, lock)
		if one == nil {
			continue
		}
		one.holder = nil
		if len(one.waiters) > 0 {
			next = one.waiters[0]
			next.freed = now
			one.handovers++
		}
		if one.handovers >= maxHandovers || now.Since(one.since) >= maxHandoverTime || len(a.Resources) > 1 || next != nil &&
			len(next.want.Resources) > 1 {
			next, one.handovers, one.yieldUntil = nil, 0, now.Add(yieldPause)
		}
		q.dropUnused(lock)
	}
	if next != nil {
		next.refused = false // the lock is free now
	}
	q.mu.Unlock()

	if next != nil {
		return a.handOver(next)
	}
	r := a.release(scripts.WakeNext)
	q.wakeAfter(r, a.Resources)
	return r
}

// wakeAfter wakes the first waiters of some locks when the release has shown whether it
// woke another process. That process then goes first.
func (q *queues) wakeAfter(r *releasing, locks []fencing.Resource) {
	q.mu.Lock()
	waited := slices.ContainsFunc(locks, func(lock fencing.Resource) bool { return q.locks[lock] != nil })
	q.mu.Unlock()
	if !waited {
		return
	}
	go func() {
		<-r.done
		r.mu.Lock()
		otherProcess := r.woken
		r.mu.Unlock()
		now := q.backend.clock.Now()
		q.mu.Lock()
		defer q.mu.Unlock()
		for _, lock := range locks {
			one := q.locks[lock]
			if one == nil || len(one.waiters) == 0 {
				continue
			}
			first := one.waiters[0]
			one.yieldUntil = engine.Instant{}
			switch {
			case !otherProcess:
				first.refused = false // the lock is free now
			case first.wokenBy == 0 && one.holder == nil:
				one.yieldUntil = now.Add(yieldPause)
			}
			first.wake()
		}
	}()
}

// wake receives a wake-up: a lock is free on a node, and this process is the first that
// waits for it there. If it no longer waits, the wake-up is passed on.
func (q *queues) wake(node int, lock fencing.Resource) {
	q.mu.Lock()
	one := q.locks[lock]
	if one == nil || len(one.waiters) == 0 {
		holds := one != nil && one.holder != nil
		q.mu.Unlock()
		if !holds {
			q.backend.passOn(node, lock)
		}
		return
	}
	defer q.mu.Unlock()
	w := one.waiters[0]
	first := w.wokenBy == 0
	w.wokenBy |= 1 << node
	switch {
	case w.wokenBy.Count() >= q.backend.quorum:
		one.yieldUntil = engine.Instant{}
		w.wake()
	case first:
		time.AfterFunc(wakeGrace, func() {
			q.mu.Lock()
			defer q.mu.Unlock()
			if w.wokenBy != 0 {
				w.retryAt, one.yieldUntil = engine.Instant{}, engine.Instant{}
				w.wake()
			}
		})
	}
}
