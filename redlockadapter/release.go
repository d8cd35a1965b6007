package redlockadapter

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/leased-project/leased/lease"
)

// Whom a release wakes, as the script knows it.
const (
	wakeNone = "none"
	wakeNext = "next" // who has waited longest, if the lock was mine
	wakeAny  = "any"  // the same, whoever had the lock
)

// noTomb is the life of no tombstone.
const noTomb = "0"

// farewell is a release under way. It goes to all nodes; its caller waits for a
// majority at most.
type farewell struct {
	quorum int
	done   chan struct{} // closed when a majority has confirmed, or none can

	mu        sync.Mutex
	left      int
	confirmed int
	woken     bool
	err       error
}

func newFarewell(nodes, quorum int) *farewell {
	return &farewell{quorum: quorum, left: nodes, done: make(chan struct{})}
}

func (f *farewell) answered(_ int, got answer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.left--
	before := f.confirmed
	if got.err == nil {
		f.confirmed++
		f.woken = f.woken || got.text == "1"
	} else {
		f.err = got.err
	}
	if f.confirmed == f.quorum && before < f.quorum || f.left == 0 && f.confirmed < f.quorum {
		close(f.done)
	}
}

// await returns when a majority has confirmed.
func (f *farewell) await(ctx context.Context) error {
	select {
	case <-f.done:
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", lease.ErrUncertain, context.Cause(ctx))
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.confirmed < f.quorum {
		return fmt.Errorf("%w: only %d Redis nodes confirm, %d are needed: %w", lease.ErrUncertain, f.confirmed, f.quorum, f.err)
	}
	return nil
}

// release ends the attempt on every node, also on those that failed: they may
// have voted. Where the answer to the acquire, or to a renewal, is missing a copy of
// it may still be on its way, on another connection, so a tombstone is left for it;
// where it was answered there is no such copy, since nothing is sent twice. Which of
// them it is is known when the release is sent, for it follows them on its lane.
func (a *attempt) release(wake string) *farewell {
	f, o := a.farewellOp(wake)
	for _, l := range a.session.backend.lanes {
		l.push(o)
	}
	return f
}

// handOn is release, with the lock meant for one who waits in this process: its
// acquire should go with the release, in one round trip.
func (a *attempt) handOn(next *waiter) *farewell {
	f, o := a.farewellOp(wakeNone)
	for _, l := range a.session.backend.lanes {
		l.hold(o)
	}
	next.poke()
	runtime.Gosched() // to next
	for _, l := range a.session.backend.lanes {
		l.flush()
	}
	return f
}

// farewellOp ends the attempt here, and makes the op that ends it on a node.
func (a *attempt) farewellOp(wake string) (*farewell, *op) {
	b := a.session.backend
	f := newFarewell(len(b.lanes), b.quorum)
	answered := func(node int, got answer) {
		f.answered(node, got)
		if got.err != nil {
			a.releaseLater(node, 0)
		}
	}
	plain := a.short
	if wake != wakeNext || !a.plain() {
		plain = a.farewell(noTomb, wake)
	}
	o := &op{script: releaseScript, answer: answered, late: func(node int) args {
		a.mu.Lock()
		unknown := a.unknown>>node&1 == 1
		a.mu.Unlock()
		if unknown {
			return a.farewell(tombLife(a.session.ttl), wake)
		}
		return plain
	}}
	a.mu.Lock()
	a.ended = true
	a.stop.Store(true)
	a.mu.Unlock()
	return f, o
}

// farewell are the args of a release.
func (a *attempt) farewell(tomb, wake string) args {
	return a.long(a.claim.after("*" + strconv.Itoa(len(a.locks)) + " " + tomb + " " + wake))
}

// stay has a reader or a permit pass on the lock that it took for its token, and
// stay in. A node that does not hear of it learns by the next renewal.
func (a *attempt) stay() {
	if a.claim.kind == lease.Exclusive {
		return
	}
	first := a.claim.after("*" + strconv.Itoa(len(a.locks)) + " " + noTomb + " " + wakeNext)
	o := &op{script: releaseScript, stop: &a.stop, answer: func(int, answer) {},
		args: a.long(first + " " + a.session.ttlText + " " + a.token.String())}
	for _, l := range a.session.backend.lanes {
		l.push(o)
	}
}

// releaseAgain is when a node that could not be told is told again. After that
// it is left to the TTL.
var releaseAgain = []time.Duration{100 * time.Millisecond, 400 * time.Millisecond, 1600 * time.Millisecond}

// releaseLater tells a node that failed once more that the attempt is over. What
// it keeps of it would stand in everybody's way until its TTL.
func (a *attempt) releaseLater(node, times int) {
	b := a.session.backend
	if times == len(releaseAgain) || releaseAgain[times] > a.session.ttl || b.ctx.Err() != nil {
		return
	}
	again := &op{script: releaseScript, args: a.farewell(tombLife(a.session.ttl), wakeNext),
		answer: func(node int, got answer) {
			if got.err != nil {
				a.releaseLater(node, times+1)
			}
		}}
	time.AfterFunc(releaseAgain[times], func() { b.lanes[node].push(again) })
}

// tombLife is how long a tombstone lasts: a copy that comes after it gets a
// lock that nobody holds, for one TTL. It is no danger, only a delay.
func tombLife(ttl time.Duration) string {
	return strconv.FormatInt(max(10*ttl, time.Minute).Milliseconds(), 10)
}
