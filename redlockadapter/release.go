package redlockadapter

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/leased-project/leased/lease/engine"
)

// Whom a release wakes, as the script knows it.
const (
	wakeNone = "none"
	wakeNext = "next" // the longest waiter, if the lock was freed
	wakeAny  = "any"  // the longest waiter
)

// Why an attempt ended, as records say it.
const (
	causeReleased = "released"
	causeBroken   = "broken"
)

// releasing is a release under way. It goes to all nodes; its caller waits for a
// majority at most.
type releasing struct {
	quorum int
	done   chan struct{} // closed when a majority has confirmed, or none can

	mu        sync.Mutex
	left      int
	confirmed int
	woken     bool
	err       error
}

func (b *Backend) newReleasing() *releasing {
	return &releasing{quorum: b.quorum, left: len(b.nodes), done: make(chan struct{})}
}

func (r *releasing) answered(got reply) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.left--
	if got.err == nil {
		r.confirmed++
		r.woken = r.woken || got.token > 0
	} else {
		r.err = got.err
	}
	if got.err == nil && r.confirmed == r.quorum || r.left == 0 && r.confirmed < r.quorum {
		close(r.done)
	}
}

// await returns when a majority has confirmed.
func (r *releasing) await(ctx context.Context) error {
	select {
	case <-r.done:
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", engine.ErrUncertain, context.Cause(ctx))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.confirmed < r.quorum {
		return fmt.Errorf("%w: %d Redis nodes confirmed the release, %d are needed: %w", engine.ErrUncertain, r.confirmed, r.quorum, r.err)
	}
	return nil
}

// releaseRequest ends an attempt on a node. With late set, a copy of its acquire
// or of a renewal may arrive after the release, over another connection.
func (b *Backend) releaseRequest(h *engine.Held, cause, wake string, late bool) *request {
	return newRequest(releaseScript, keysOf(h.Resources)[1:], h.Name, cause, b.channel, wake, flag(late))
}

func flag(set bool) string {
	if set {
		return "1"
	}
	return "0"
}

// end ends the attempt here, and returns the nodes where an unanswered request may
// still be carried out.
func (a *attempt) end() (unknown uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.over = true
	a.canceled.Store(true)
	return a.unknown
}

// release ends a granted attempt on every node, also on those that failed: they
// may have accepted it.
func (a *attempt) release(wake string) *releasing {
	r, unknown := a.backend.newReleasing(), a.end()
	requests := a.releaseRequests(r, wake, unknown)
	for i, n := range a.backend.nodes {
		n.push(requests[unknown>>i&1])
	}
	return r
}

// withdraw ends an attempt that was not granted, on the nodes that may have
// accepted it. A node that refused a raise still has the lock.
func (a *attempt) withdraw(wake string) {
	r, unknown := a.backend.newReleasing(), a.end()
	a.mu.Lock()
	taken := a.taken
	a.mu.Unlock()
	requests := a.releaseRequests(r, wake, unknown)
	for i, n := range a.backend.nodes {
		late := unknown >> i & 1
		if late == 1 || taken>>i&1 == 1 {
			n.push(requests[late])
		}
	}
}

// handOver is release, with the lock meant for a waiter of this process: its
// acquire should follow the release in the same batch.
func (a *attempt) handOver(next *waiter) *releasing {
	r, unknown := a.backend.newReleasing(), a.end()
	requests := a.releaseRequests(r, wakeNone, unknown)
	for i, n := range a.backend.nodes {
		n.hold(requests[unknown>>i&1])
	}
	next.poke()
	runtime.Gosched() // to next
	for _, n := range a.backend.nodes {
		n.flush()
	}
	return r
}

// releaseRequests returns the request for nodes that answered everything, and the
// one for the others.
func (a *attempt) releaseRequests(r *releasing, wake string, unknown uint64) (requests [2]*request) {
	answer := func(node int, got reply) {
		r.answered(got)
		if got.err != nil {
			a.backend.releaseLater(&a.Held, node, 0)
		}
	}
	requests[0] = a.backend.releaseRequest(&a.Held, causeReleased, wake, false)
	requests[0].answer = answer
	if unknown != 0 {
		requests[1] = a.backend.releaseRequest(&a.Held, causeReleased, wake, true)
		requests[1].answer = answer
	}
	return requests
}

// releaseAgain is when a node that could not be told of a release is told again.
// After that it is left to the TTL.
var releaseAgain = []time.Duration{100 * time.Millisecond, 400 * time.Millisecond, 1600 * time.Millisecond}

// releaseLater tells a node that failed once more that an attempt has ended. What
// the node keeps of it would block everybody until its TTL.
func (b *Backend) releaseLater(h *engine.Held, node, times int) {
	if times == len(releaseAgain) || releaseAgain[times] > h.TTL || b.ctx.Err() != nil {
		return
	}
	again := b.releaseRequest(h, causeReleased, wakeNext, true)
	again.answer = func(node int, got reply) {
		if got.err != nil {
			b.releaseLater(h, node, times+1)
		}
	}
	time.AfterFunc(releaseAgain[times], func() { b.nodes[node].push(again) })
}

// Release ends a lease that any process was granted.
func (b *Backend) Release(ctx context.Context, h engine.Held) error {
	if a := b.granted.take(h.Name); a != nil {
		return b.queues.release(a).await(ctx)
	}
	return b.releaseHeld(ctx, &h, causeReleased)
}

func (b *Backend) releaseHeld(ctx context.Context, h *engine.Held, cause string) error {
	r := b.newReleasing()
	request := b.releaseRequest(h, cause, wakeNext, true)
	request.answer = func(node int, got reply) {
		r.answered(got)
		if got.err != nil {
			b.releaseLater(h, node, 0)
		}
	}
	for _, n := range b.nodes {
		n.push(request)
	}
	return r.await(ctx)
}
