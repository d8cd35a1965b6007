package redlockadapter

import (
	"context"
	"fmt"
	"math/bits"
	"runtime"
	"sync"
	"time"

	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/redlockadapter/redisconn"
	"github.com/leased-project/leased/redlockadapter/scripts"
)

// releasing is a release in progress. It goes to all nodes that may know the attempt, and
// is complete when a quorum is free of it.
type releasing struct {
	quorum int
	done   chan struct{} // closed when a quorum is free, or cannot be any more

	mu        sync.Mutex
	pending   int
	confirmed int  // the nodes that do not hold the lock for this attempt
	woken     bool // a waiting process was woken
	err       error
}

// newReleasing returns a release that goes to all nodes but those in unasked, which were
// not sent anything: they count as confirmed.
func (b *Backend) newReleasing(unasked uint64) *releasing {
	free := bits.OnesCount64(unasked)
	return &releasing{quorum: b.quorum, pending: len(b.nodes) - free, confirmed: free, done: make(chan struct{})}
}

func (r *releasing) answered(got redisconn.Reply) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pending--
	if got.Err == nil {
		r.confirmed++
		r.woken = r.woken || scripts.Woken(got)
	} else {
		r.err = got.Err
	}
	if got.Err == nil && r.confirmed == r.quorum || r.pending == 0 && r.confirmed < r.quorum {
		close(r.done)
	}
}

// await returns nil when a quorum has confirmed.
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

// releaseRequest returns a request that ends an attempt. A node that fails is asked
// again later. r may be nil.
func (b *Backend) releaseRequest(h *engine.Held, cause scripts.Cause, wake scripts.Wake, late bool, r *releasing) *redisconn.Request {
	call := scripts.Release{Name: h.Name, Resources: h.Resources, Cause: cause, Wake: wake, Channel: b.channel, Late: late, Token: h.Token}
	request := call.Request()
	request.Servers = b.servers()
	request.Answer = func(node int, got redisconn.Reply) {
		if r != nil {
			r.answered(got)
		}
		if got.Err != nil {
			b.releaseLater(h, node, 0)
		}
	}
	return request
}

// end marks the attempt as ended, and returns the nodes that accepted it, those that may
// still execute an unanswered request, and those that were not asked and never will be.
func (a *attempt) end() (accepted, unanswered, unasked uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.ended {
		a.ended = true
		a.canceled.Store(true)
		a.checkComplete()
	}
	return a.accepted, a.unanswered, a.unasked
}

// release ends a granted attempt on every node that was asked, including those that
// failed: they may have accepted it.
func (a *attempt) release(wake scripts.Wake) *releasing {
	_, unanswered, unasked := a.end()
	r := a.backend.newReleasing(unasked)
	a.sendRelease(a.backend.allNodes()&^unasked, unanswered, wake, r, (*redisconn.Conn).Send)
	return r
}

// withdraw ends an attempt that was not granted, on the nodes that may have accepted
// it. A node that refused a raise still holds the lock for it.
func (a *attempt) withdraw(wake scripts.Wake) {
	accepted, unanswered, _ := a.end()
	a.sendRelease(accepted|unanswered, unanswered, wake, nil, (*redisconn.Conn).Send)
}

// handOver releases a granted attempt in favor of a waiter of this process, whose
// acquire should follow in the same batch. In two batches there are half as many handoffs
// per second ('go run . -only W2 -targets leased-efficiency' in bench).
func (a *attempt) handOver(next *waiter) *releasing {
	_, unanswered, unasked := a.end()
	r := a.backend.newReleasing(unasked)
	a.sendRelease(a.backend.allNodes()&^unasked, unanswered, scripts.WakeNobody, r, func(n *redisconn.Conn, request *redisconn.Request) { n.Enqueue(request) })
	next.wake()
	runtime.Gosched() // let it run
	for _, n := range a.backend.nodes {
		n.Flush()
	}
	return r
}

// sendRelease passes the release for each of the nodes to send. Nodes that did not answer
// refuse late copies of the attempt.
func (a *attempt) sendRelease(nodes, unanswered uint64, wake scripts.Wake, r *releasing, send func(*redisconn.Conn, *redisconn.Request)) {
	for _, part := range []struct {
		nodes uint64
		late  bool
	}{{nodes &^ unanswered, false}, {nodes & unanswered, true}} {
		if part.nodes == 0 {
			continue
		}
		request := a.backend.releaseRequest(&a.Held, scripts.Released, wake, part.late, r)
		for rest := part.nodes; rest != 0; rest &= rest - 1 {
			send(a.backend.nodes[bits.TrailingZeros64(rest)], request)
		}
	}
}

// releaseRetries are the delays after which a failed release is sent to a node again.
// After that the lock expires on the node.
var releaseRetries = []time.Duration{100 * time.Millisecond, 400 * time.Millisecond, 1600 * time.Millisecond}

// releaseLater sends a release again to a node that failed. Otherwise the node would
// keep the lock until its TTL has passed.
func (b *Backend) releaseLater(h *engine.Held, node, retry int) {
	if retry == len(releaseRetries) || releaseRetries[retry] > h.TTL || b.ctx.Err() != nil {
		return
	}
	request := b.releaseRequest(h, scripts.Released, scripts.WakeNext, true, nil)
	request.Answer = func(node int, got redisconn.Reply) {
		if got.Err != nil {
			b.releaseLater(h, node, retry+1)
		}
	}
	time.AfterFunc(releaseRetries[retry], func() { b.nodes[node].Send(request) })
}

// Release ends a lease, whichever process acquired it. A lease without a name was never
// granted: its attempts were withdrawn.
func (b *Backend) Release(ctx context.Context, h engine.Held) error {
	if h.Name == "" {
		return nil
	}
	var r *releasing
	if a := b.grants.take(h.Name); a != nil {
		r = b.queues.release(a)
	} else {
		r = b.releaseEverywhere(&h, scripts.Released)
	}
	err := r.await(ctx)
	if err == nil {
		b.debug("released", &h)
	}
	return err
}

// releaseEverywhere releases a lease that another process may have acquired.
func (b *Backend) releaseEverywhere(h *engine.Held, cause scripts.Cause) *releasing {
	r := b.newReleasing(0)
	b.sendAll(b.releaseRequest(h, cause, scripts.WakeNext, true, r))
	return r
}
