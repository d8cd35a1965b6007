package redlockadapter

import (
	"math/bits"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

const (
	// maxStreak is how many times in a row a lock is handed over inside one
	// process before other processes get a chance.
	maxStreak = 64
	// maxStreakTime bounds the same by time: callers that hold a lock for long hand
	// it over less often.
	maxStreakTime = 50 * time.Millisecond
	// yieldPause is how long this process then stands back, if another one was
	// woken.
	yieldPause = 25 * time.Millisecond
	// wakeGrace is how long a first wake-up waits for those of the other nodes.
	wakeGrace = 3 * time.Millisecond
	// maxSleep bounds how long a waiter relies on being woken. Wake-ups are hints
	// and can be lost with a connection; a few attempts a second cost little.
	maxSleep = 200 * time.Millisecond
	// maxTrust is how long a waiter relies on a holder of this process to wake it.
	// The holder's lease may be released or broken through another process.
	maxTrust = 250 * time.Millisecond
	// maxJitter spreads waiters whose timers end at the same time.
	maxJitter = 10 * time.Millisecond
)

// queues knows who in this process waits for which lock, and who holds it. Only
// the first waiter of a lock contends for it on the nodes; the others queue behind
// it, in order. A waiter for a set is in the queues of all its locks and contends
// when it is first in each. That cannot deadlock: the earliest waiter is first
// everywhere.
type queues struct {
	backend *Backend

	mu    sync.Mutex
	locks map[fencing.Resource]*queue
}

// queue is what is known of one lock. It exists while there is something to
// know.
type queue struct {
	holder  *attempt       // of this process, if it holds the lock
	asked   engine.Instant // when a waiter last asked the nodes although this process holds the lock
	waiters []*waiter
	streak  int            // handovers inside the process in a row
	since   engine.Instant // when the process got the lock, before the streak
	notYet  engine.Instant // other processes go first until then
}

// waiter is one acquire that waits. Its fields are guarded by the mu of queues.
type waiter struct {
	want   engine.Held
	signal chan struct{}  // look again
	woken  uint64         // the nodes that said that the lock is free
	tried  bool           // it knows that others hold the lock
	retry  engine.Instant // when to try again if nobody wakes it
}

func newQueues(b *Backend) *queues {
	return &queues{backend: b, locks: map[fencing.Resource]*queue{}}
}

// waiterName is how the nodes know the waiters of this process: the process and,
// for people, the holder's name.
func (b *Backend) waiterName(holder string) string { return b.process + " " + holder }

// newTicket returns the place of a waiter in the queues of the nodes: since when
// it waits. The clocks of processes need not agree: it decides only who is woken
// first.
func (b *Backend) newTicket() string { return strconv.FormatInt(wallClock().UnixMicro(), 10) }

func (w *waiter) poke() {
	select {
	case w.signal <- struct{}{}:
	default:
	}
}

// of returns the queue of a lock and makes it if there is none. The caller holds
// mu.
func (q *queues) of(lock fencing.Resource) *queue {
	one := q.locks[lock]
	if one == nil {
		one = &queue{}
		q.locks[lock] = one
	}
	return one
}

// tidy forgets a queue that is of no use. The caller holds mu.
func (q *queues) tidy(lock fencing.Resource) {
	if one := q.locks[lock]; one != nil && one.holder == nil && len(one.waiters) == 0 {
		delete(q.locks, lock)
	}
}

// held notes that this process holds the locks of a.
func (q *queues) held(a *attempt) {
	now := q.backend.clock.Now()
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, lock := range a.Resources {
		one := q.of(lock)
		one.holder, one.asked, one.notYet = a, now, engine.Instant{}
		if one.streak == 0 {
			one.since = now
		}
	}
}

func (q *queues) join(want engine.Held) *waiter {
	w := &waiter{want: want, signal: make(chan struct{}, 1)}
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, lock := range want.Resources {
		one := q.of(lock)
		one.waiters = append(one.waiters, w)
	}
	return w
}

// leave takes w out and has those behind it look again.
func (q *queues) leave(w *waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, lock := range w.want.Resources {
		one := q.locks[lock]
		first := one.waiters[0] == w
		one.waiters = slices.DeleteFunc(one.waiters, func(other *waiter) bool { return other == w })
		if first && len(one.waiters) > 0 {
			one.waiters[0].poke()
		}
		q.tidy(lock)
	}
}

// waiting returns who waits for a lock in this process, in order.
func (q *queues) waiting(lock fencing.Resource) []engine.Party {
	q.mu.Lock()
	defer q.mu.Unlock()
	var parties []engine.Party
	if one := q.locks[lock]; one != nil {
		for _, w := range one.waiters {
			parties = append(parties, engine.Party{Holder: w.want.Holder, Session: w.want.Session, Nonce: w.want.Nonce, Metadata: w.want.Metadata})
		}
	}
	return parties
}

// ready returns how long w must wait before it may contend: 0 if it may now.
// While this process holds the lock there is little to ask, since its release
// wakes the waiter. But the lease may end without one, or through another process,
// so the nodes are asked now and then all the same.
func (q *queues) ready(w *waiter) time.Duration {
	now := q.backend.clock.Now()
	q.mu.Lock()
	defer q.mu.Unlock()
	nap := time.Duration(0)
	for _, lock := range w.want.Resources {
		one := q.locks[lock]
		if one.waiters[0] != w {
			return time.Hour // it is poked when its turn comes
		}
		if one.holder != nil && bits.OnesCount64(w.woken) < q.backend.quorum {
			nap = max(nap, now.Until(one.asked.Add(min(one.holder.TTL, maxTrust))))
		}
		nap = max(nap, now.Until(one.notYet))
	}
	if w.tried && bits.OnesCount64(w.woken) < q.backend.quorum {
		nap = max(nap, now.Until(w.retry))
	}
	if nap > 0 {
		return nap
	}
	for _, lock := range w.want.Resources {
		q.locks[lock].asked = now
	}
	w.woken, w.tried = 0, false
	return 0
}

// postpone notes that w was refused, and when to try again at the latest.
func (q *queues) postpone(w *waiter, d time.Duration) {
	now := q.backend.clock.Now()
	q.mu.Lock()
	defer q.mu.Unlock()
	w.tried, w.retry = true, now.Add(d)
}

// release ends a grant. A lock that someone in this process waits for is handed
// over directly: the next acquire follows the release on every connection, and
// nobody else is woken. Every so often other processes go first: until it is known
// whether there are any, nobody of this process contends.
func (q *queues) release(a *attempt) *releasing {
	now := q.backend.clock.Now()
	q.mu.Lock()
	var next *waiter
	for _, lock := range a.Resources {
		one := q.locks[lock]
		if one == nil || one.holder != a {
			continue
		}
		one.holder = nil
		if len(one.waiters) > 0 {
			next = one.waiters[0]
			one.streak++
		}
		if one.streak >= maxStreak || now.Since(one.since) >= maxStreakTime || len(a.Resources) > 1 || next != nil && len(next.want.Resources) > 1 {
			next, one.streak, one.notYet = nil, 0, now.Add(yieldPause)
		}
		q.tidy(lock)
	}
	if next != nil {
		next.tried = false // what it knows of the nodes is outdated: it may contend at once
	}
	q.mu.Unlock()

	if next != nil {
		return a.handOver(next)
	}
	r := a.release(wakeNext)
	q.pokeFirst(a.Resources, r)
	return r
}

// pokeFirst has the first waiters of some locks look again, once it is known
// whether a waiter of another process was woken, which then goes first.
func (q *queues) pokeFirst(locks []fencing.Resource, r *releasing) {
	q.mu.Lock()
	waited := slices.ContainsFunc(locks, func(lock fencing.Resource) bool { return q.locks[lock] != nil })
	q.mu.Unlock()
	if !waited {
		return
	}
	go func() {
		<-r.done
		r.mu.Lock()
		woken := r.woken
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
			one.notYet = engine.Instant{}
			switch {
			case !woken:
				first.tried = false // nobody else takes it
			case first.woken == 0 && one.holder == nil:
				one.notYet = now.Add(yieldPause)
			}
			first.poke()
		}
	}()
}

// freed hears from a node that a lock is free there and that this process is the
// next. A wake-up that nobody needs is passed on.
func (q *queues) freed(node int, lock fencing.Resource) {
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
		one.notYet = engine.Instant{} // it is the turn of this process
		w.poke()
	case first:
		time.AfterFunc(wakeGrace, func() {
			q.mu.Lock()
			defer q.mu.Unlock()
			if w.woken != 0 {
				w.retry, one.notYet = engine.Instant{}, engine.Instant{}
				w.poke()
			}
		})
	}
}

// lost notes that this process no longer holds the locks of a, and has the first
// waiters look again.
func (q *queues) lost(a *attempt) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, lock := range a.Resources {
		one := q.locks[lock]
		if one == nil || one.holder != a {
			continue
		}
		one.holder = nil
		if len(one.waiters) > 0 {
			one.waiters[0].poke()
		}
		q.tidy(lock)
	}
}
