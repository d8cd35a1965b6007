package redlockadapter

import (
	"context"
	"fmt"
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

// farewell is a release under way. It goes to all nodes; its caller waits for a
// majority at most.
type farewell struct {
	quorum int
	done   chan struct{} // closed when a majority has confirmed, or none can

	mu        sync.Mutex
	left      int
	confirmed int
	woken     int
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
		if woken, err := strconv.Atoi(got.text); err == nil {
			f.woken += woken
		}
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
// have voted. Where the answer to the acquire is missing a copy of it may still be
// on its way, on another connection, so a tombstone is left for it; where it was
// answered there is no such copy, since nothing is sent twice. Which of them it is
// is known when the release is sent, for it follows the acquire on its lane.
func (a *attempt) release(wake string) *farewell {
	b := a.session.backend
	f := newFarewell(len(b.lanes), b.quorum)
	count := strconv.Itoa(len(a.locks))
	answered := func(node int, got answer) {
		f.answered(node, got)
		if got.err != nil {
			a.releaseLater(node, 0)
		}
	}
	plain, buried := []any{a.name, "0", wake, count}, []any{a.name, tombLife(a.session.ttl), wake, count}
	o := op{script: releaseScript, keys: a.keys.release, answer: answered, late: func(node int) []any {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.unknown[node] {
			return buried
		}
		return plain
	}}
	a.mu.Lock()
	a.ended = true
	a.stop.Store(true)
	a.mu.Unlock()
	for _, l := range b.lanes {
		l.push(o)
	}
	return f
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
	again := op{script: releaseScript, keys: a.keys.release,
		args: []any{a.name, tombLife(a.session.ttl), wakeNext, strconv.Itoa(len(a.locks))},
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
