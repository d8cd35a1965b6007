package redlockadapter

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/redlockadapter/quorum"
	"github.com/leased-project/leased/redlockadapter/redisconn"
	"github.com/leased-project/leased/redlockadapter/scripts"
)

// attempt is one acquisition attempt: it calls the scripts and passes the replies to a
// quorum.Attempt, which decides.
type attempt struct {
	engine.Held
	backend *Backend
	call    scripts.Attempt
	servers []string       // that it may ask; nil for any
	renewed engine.Instant // when it was granted or last renewed; guarded by grants

	canceled atomic.Bool        // requests that were not sent need not be
	decided  chan struct{}      // closed with the decision
	complete chan struct{}      // closed when a waiter's attempt has ended and every node that was asked has answered the acquire, or failed; else nil
	request  *redisconn.Request // the acquire, before the attempt is granted
	waiter   string             // as sent with the acquire
	ticket   string

	mu         sync.Mutex
	votes      *quorum.Attempt
	errs       []error // why nodes did not accept; nil while all that answered have
	unasked    uint64  // the nodes that were not sent anything
	unanswered uint64  // the nodes that may still execute a request that they did not answer
	accepted   uint64  // the nodes that accepted the acquire, even if they refused a raise
	pending    int     // the number of nodes that were asked and did not answer the acquire
	spread     bool    // granted, and sent to all nodes
	informed   uint64  // the nodes that were told the granted token
	ended      bool    // released or withdrawn
}

func (b *Backend) newAttempt(h engine.Held, under authority) *attempt {
	return &attempt{Held: h, backend: b, servers: under.servers, call: b.scriptAttempt(&h, under.version), decided: make(chan struct{}), votes: quorum.NewAttempt(len(b.nodes))}
}

// scriptAttempt describes a lease to the scripts.
func (b *Backend) scriptAttempt(h *engine.Held, version uint64) scripts.Attempt {
	return scripts.Attempt{Name: h.Name, Resources: h.Resources, Version: version, Fleet: b.fingerprint, TTL: h.TTL, Details: detailsOf(h)}
}

// send sends the acquire to the nodes that are asked first. waiter and ticket queue the
// process on nodes where the lock is held; both are empty for an attempt that does not
// wait.
func (a *attempt) send(waiter, ticket string) {
	if waiter != "" {
		a.complete = make(chan struct{})
	}
	a.waiter, a.ticket = waiter, ticket
	a.request = a.acquireRequest(fencing.None)
	first := a.backend.firstNodes(a.Resources[0], a.TTL, a.servers)
	a.unasked, a.unanswered, a.pending = a.backend.allNodes()&^first, first, bits.OnesCount64(first)
	a.backend.sendTo(first, a.request)
}

// acquireRequest returns the acquire. granted is the granted token, or None.
func (a *attempt) acquireRequest(granted fencing.Token) *redisconn.Request {
	r := a.call.Acquire(a.waiter, a.ticket, granted)
	r.Answer, r.Canceled, r.Servers = a.answered, &a.canceled, a.servers
	return r
}

// answered receives the reply of a node to the acquire.
func (a *attempt) answered(node int, got redisconn.Reply) {
	vote, err := scripts.Vote(got)
	a.mu.Lock()
	if !got.MaybeExecuted {
		a.unanswered &^= 1 << node
	}
	if vote.State == quorum.Accepted {
		a.accepted |= 1 << node
	}
	a.setError(node, err)
	a.pending--
	a.checkComplete()
	raises := a.votes.Answer(node, vote)
	failed := vote.State == quorum.Refused || vote.State == quorum.Failed
	var rest uint64
	request := a.request
	switch {
	case a.votes.Outcome() == quorum.Wait && (failed || a.pending == 0):
		rest = a.takeRest()
	case a.spread:
		rest, request = a.takeUninformed()
	}
	a.act(raises)
	a.backend.sendTo(rest, request)
}

// setError records why a node did not accept, nil if it did. The caller holds mu.
func (a *attempt) setError(node int, err error) {
	if a.errs == nil && err != nil {
		a.errs = slices.Repeat([]error{errNoAnswer}, len(a.backend.nodes))
		for rest := a.accepted; rest != 0; rest &= rest - 1 {
			a.errs[bits.TrailingZeros64(rest)] = nil
		}
	}
	if a.errs != nil {
		a.errs[node] = err
	}
}

// checkComplete closes complete if all nodes that were asked have answered. The caller
// holds mu, and has changed pending or ended.
func (a *attempt) checkComplete() {
	if a.ended && a.pending == 0 && a.complete != nil {
		close(a.complete)
	}
}

// raised receives the reply of a node to a raise.
func (a *attempt) raised(node int, token fencing.Token, got redisconn.Reply) {
	vote, err := scripts.Vote(got)
	a.mu.Lock()
	if got.MaybeExecuted {
		a.unanswered |= 1 << node
	}
	if err != nil {
		a.setError(node, err)
	}
	raises := a.votes.Raised(node, token, vote)
	a.act(raises)
}

// act announces a decision and sends raises. It unlocks mu.
func (a *attempt) act(raises []quorum.Raise) {
	if a.ended {
		raises = nil
	} else if a.votes.Outcome() != quorum.Wait {
		select {
		case <-a.decided:
		default:
			close(a.decided)
		}
	}
	a.mu.Unlock()
	for _, raise := range raises {
		r := a.call.Raise(raise.Token)
		r.Answer = func(node int, got redisconn.Reply) { a.raised(node, raise.Token, got) }
		r.Canceled, r.Servers = &a.canceled, a.servers
		a.backend.nodes[raise.Node].Send(r)
	}
}

// await returns nil when the attempt is decided, and an error if that takes longer than
// limit, or when ctx ends. It asks the remaining nodes if the first ones are slow.
func (a *attempt) await(ctx context.Context, limit time.Duration) error {
	first := min(a.backend.config.NodeTimeout/3, limit/4) // the time of the first nodes
	timer := time.NewTimer(first)
	defer timer.Stop()
	for {
		select {
		case <-a.decided:
			return nil
		case <-timer.C:
			if first > 0 {
				a.askRest()
				timer.Reset(limit - first)
				first = 0
				continue
			}
			a.mu.Lock()
			answered := len(a.backend.nodes) - a.pending
			a.mu.Unlock()
			return fmt.Errorf("%w: %d of %d Redis nodes answered within %v, %d are needed",
				engine.ErrUnavailable, answered, len(a.backend.nodes), limit, a.backend.quorum)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// awaitAll gives the remaining nodes that were asked some time to answer too. A waiter that is refused
// must know whether one session holds the lock or the votes are split: in the second
// case no release wakes it.
func (a *attempt) awaitAll(ctx context.Context, limit time.Duration) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-a.complete:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// outcome returns the decision.
func (a *attempt) outcome() (quorum.Outcome, fencing.Token) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.votes.Outcome(), a.votes.Token()
}

// round describes the attempt to those who trace it.
func (a *attempt) round(began engine.Instant, err error) engine.Round {
	a.mu.Lock()
	defer a.mu.Unlock()
	return engine.Round{Began: began.Time(), Took: a.backend.clock.Now().Since(began), Accepted: bits.OnesCount64(a.accepted), Nodes: len(a.backend.nodes), Err: err}
}

// refusal returns the error of an attempt that was not granted. It matches
// engine.ErrHeld, errSplit or engine.ErrUnavailable.
func (a *attempt) refusal() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	refusedWith := func(reasons ...error) bool {
		for _, err := range a.errs {
			for _, reason := range reasons {
				if errors.Is(err, reason) {
					return true
				}
			}
		}
		return false
	}
	switch {
	case quorum.HeldByOther(a.votes.Votes()):
		return &heldError{freeAfter: quorum.FreeAfter(a.votes.Votes())}
	case refusedWith(engine.ErrVersion):
		a.backend.keeper.notify()
		return a.backend.versionError()
	case refusedWith(engine.ErrHeld, scripts.ErrLost):
		return errSplit
	}
	a.backend.keeper.notify()
	return a.backend.quorumError(a.errs)
}
