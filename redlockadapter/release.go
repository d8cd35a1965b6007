package redlockadapter

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/redlockadapter/quorum"
	"github.com/leased-project/leased/redlockadapter/redisconn"
	"github.com/leased-project/leased/redlockadapter/scripts"
)

// releasing is a release in progress. It goes to all nodes that may have the attempt, and
// is complete when a quorum does not have it.
type releasing struct {
	under authority
	done  chan struct{} // closed when a quorum is free, or cannot be any more

	mu      sync.Mutex
	answers quorum.Release
	woken   bool // a waiting process was woken
	err     error
}

// newReleasing returns a release that goes to these nodes.
func (b *Backend) newReleasing(nodes quorum.Nodes) *releasing {
	n := len(b.nodes)
	under, _ := b.authorize(nil) // in another fleet, any server may have the attempt
	return &releasing{under: under, answers: quorum.Release{Nodes: n, Free: n - nodes.Count()}, done: make(chan struct{})}
}

func (r *releasing) answered(got redisconn.Reply) {
	woken, err := scripts.Confirmed(got)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		r.answers.Free++
		r.woken = r.woken || woken
	} else {
		r.answers.Failed++
		if !errors.Is(r.err, engine.ErrVersion) { // on which the caller can act
			r.err = err
		}
	}
	if r.answers.Done() {
		closeOnce(r.done)
	}
}

// await returns nil when a quorum has confirmed.
func (r *releasing) await(ctx context.Context) error {
	select {
	case <-r.done:
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", engine.ErrUncertain, engine.Cause(ctx))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.answers.Confirmed() {
		return fmt.Errorf("%w: %d Redis nodes confirmed the release, %d are needed: %w",
			engine.ErrUncertain, r.answers.Free, quorum.Size(r.answers.Nodes), r.err)
	}
	return nil
}

// releaseRequest returns a request that ends an attempt. A node that fails is asked
// again later.
func (b *Backend) releaseRequest(h *engine.Held, cause scripts.Cause, wake scripts.Wake, late bool,
	r *releasing) *redisconn.Request {
	call := scripts.Release{Name: h.Name, Resources: h.Resources, Cause: cause, Wake: wake, Channel: b.channel,
		Late: late, Token: h.Token, Version: r.under.version, Fleet: b.fingerprint}
	request := call.Request()
	request.Servers = r.under.servers
	request.Answer = func(node int, got redisconn.Reply) {
		r.answered(got)
		if got.Err != nil {
			b.releaseLater(h, cause, node)
		}
	}
	return request
}

// end ends the attempt. It returns the nodes that get a release, and which of them must refuse late copies of
// the attempt.
func (a *attempt) end() (release, late quorum.Nodes) {
	a.canceled.Store(true)
	a.step(func(core *quorum.Attempt) quorum.Requests {
		release, late = core.End()
		return quorum.Requests{}
	})
	return release, late
}

// release ends the attempt on the nodes that may have it.
func (a *attempt) release(wake scripts.Wake) *releasing {
	return a.sendRelease(wake, (*redisconn.Conn).Send)
}

// handOver releases a granted attempt in favor of a waiter of this process, whose
// acquire should follow in the same batch. In two batches there are half as many handoffs
// per second ('go run . -only W2 -targets leased-efficiency' in bench).
func (a *attempt) handOver(next *waiter) *releasing {
	r := a.sendRelease(scripts.WakeNobody, func(n *redisconn.Conn, request *redisconn.Request) { n.Enqueue(request) })
	next.wake()
	runtime.Gosched() // let it run
	for _, n := range a.backend.nodes {
		n.Flush()
	}
	return r
}

// sendRelease ends the attempt and passes the release for each node to send.
func (a *attempt) sendRelease(wake scripts.Wake, send func(*redisconn.Conn, *redisconn.Request)) *releasing {
	nodes, late := a.end()
	r := a.backend.newReleasing(nodes)
	cause := scripts.Released
	if a.Token == fencing.None {
		cause = scripts.Withdrawn
	}
	for _, part := range []quorum.Nodes{nodes &^ late, late} {
		if part == 0 {
			continue
		}
		request := a.backend.releaseRequest(&a.Held, cause, wake, part == late, r)
		for node := range part.Each {
			send(a.backend.nodes[node], request)
		}
	}
	return r
}

const (
	// A failed release is retried for releaseTime, with backoff from minReleasePause to maxReleasePause. A server that
	// hangs may execute the acquire minutes later, when it continues.
	minReleasePause = 100 * time.Millisecond
	maxReleasePause = 5 * time.Second
	releaseTime     = 10 * time.Minute
	// maxUnreleased bounds the releases that are sent again. Locks beyond that expire on the node.
	maxUnreleased = 10_000
)

// releaseLater sends a release again to a node that failed, until the node confirms it. Otherwise the node would
// keep the lock until its TTL has passed.
func (b *Backend) releaseLater(h *engine.Held, cause scripts.Cause, node int) {
	if b.unreleased.Add(1) > maxUnreleased {
		b.unreleased.Add(-1)
		return
	}
	request := b.releaseRequest(h, cause, scripts.WakeNext, true, b.newReleasing(0))
	pause, began := minReleasePause, b.clock.Now()
	again := func() {
		time.AfterFunc(pause, func() { b.nodes[node].Send(request) })
		pause = min(4*pause, maxReleasePause)
	}
	request.Answer = func(_ int, got redisconn.Reply) {
		if got.Err == nil || errors.Is(got.Err, redisconn.ErrLife) || errors.Is(got.Err, redisconn.ErrNotPermitted) ||
			b.ctx.Err() != nil || b.clock.Now().Since(began) > releaseTime {
			b.unreleased.Add(-1)
			return
		}
		again()
	}
	again()
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

// Withdraw ends a lease that nobody knows of yet. It does not end a lease that has been renewed: another process has
// found the attempt granted, and may have answered its holder.
func (b *Backend) Withdraw(ctx context.Context, h engine.Held) error {
	b.forget(h.Name)
	return b.releaseEverywhere(&h, scripts.Withdrawn).await(ctx)
}

// forget ends a grant of this process without a release.
func (b *Backend) forget(name string) {
	if a := b.grants.take(name); a != nil {
		a.end()
		b.queues.lost(a)
	}
}

// releaseEverywhere releases a lease that another process may have acquired.
func (b *Backend) releaseEverywhere(h *engine.Held, cause scripts.Cause) *releasing {
	r := b.newReleasing(quorum.All(len(b.nodes)))
	b.sendAll(b.releaseRequest(h, cause, scripts.WakeNext, true, r))
	return r
}
