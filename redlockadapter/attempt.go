package redlockadapter

import (
	"context"
	"errors"
	"fmt"
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

// attempt is one acquisition attempt: it sends the requests of a quorum.Attempt, which decides, and
// passes the replies to it.
type attempt struct {
	engine.Held
	backend *Backend
	call    scripts.Attempt
	servers []string       // the servers that it may ask; nil for any
	renewed engine.Instant // when it was granted or last renewed; guarded by grants

	canceled atomic.Bool   // requests that were not sent yet are dropped
	decided  chan struct{} // closed with the decision
	// complete is closed when a waiter's attempt has ended and every node that was asked has answered the
	// acquire, or failed. It is nil for other attempts.
	complete chan struct{}
	waiter   string // as sent with the acquire
	ticket   string

	mu   sync.Mutex
	core *quorum.Attempt
	errs []error // why each node did not accept, nil if it did
}

func (b *Backend) newAttempt(h engine.Held, under authority) *attempt {
	return &attempt{Held: h, backend: b, servers: under.servers, call: b.scriptAttempt(&h, under.version),
		decided: make(chan struct{}), core: quorum.NewAttempt(len(b.nodes)),
		errs: slices.Repeat([]error{errNoAnswer}, len(b.nodes))}
}

// scriptAttempt describes a lease to the scripts.
func (b *Backend) scriptAttempt(h *engine.Held, version uint64) scripts.Attempt {
	return scripts.Attempt{Name: h.Name, Resources: h.Resources, Version: version, Fleet: b.fingerprint, TTL: h.TTL,
		Details: b.detailsOf(h)}
}

// start asks the first nodes. waiter and ticket queue the process on nodes where the lock is held; both
// are empty for an attempt that does not wait.
func (a *attempt) start(waiter, ticket string) {
	if waiter != "" {
		a.complete = make(chan struct{})
	}
	a.waiter, a.ticket = waiter, ticket
	first := a.backend.firstNodes(a.Resources[0], a.TTL, a.servers)
	a.step(func(core *quorum.Attempt) quorum.Requests { return core.Ask(first) })
}

// step changes the state of the attempt, announces a decision, and sends requests.
func (a *attempt) step(change func(*quorum.Attempt) quorum.Requests) {
	a.mu.Lock()
	send := change(a.core)
	if a.core.Outcome != quorum.Wait && !a.core.Ended {
		closeOnce(a.decided)
	}
	if a.core.Ended && a.core.Pending == 0 && a.complete != nil {
		closeOnce(a.complete)
	}
	a.mu.Unlock()
	if send.Raise != 0 {
		r := a.call.Raise(send.RaiseTo)
		r.Answer = func(node int, got redisconn.Reply) { a.raised(node, send.RaiseTo, got) }
		a.send(send.Raise, r)
	}
	if send.Acquire != 0 {
		r := a.call.Acquire(a.waiter, a.ticket, send.Granted)
		r.Answer = a.answered
		a.send(send.Acquire, r)
	}
}

// closeOnce closes a channel that the caller alone closes, unless it is closed.
func closeOnce(c chan struct{}) {
	select {
	case <-c:
	default:
		close(c)
	}
}

// send sends a request of the attempt to some nodes. If the attempt ends before the request is sent
// to a node, the request is dropped.
func (a *attempt) send(nodes quorum.Nodes, r *redisconn.Request) {
	r.Canceled, r.Servers = &a.canceled, a.servers
	a.backend.sendTo(nodes, r)
}

// answered receives the reply of a node to the acquire.
func (a *attempt) answered(node int, got redisconn.Reply) {
	vote, err := scripts.Vote(got)
	a.step(func(core *quorum.Attempt) quorum.Requests {
		a.errs[node] = err
		return core.Answer(node, vote, got.MaybeExecuted)
	})
}

// raised receives the reply of a node to a raise.
func (a *attempt) raised(node int, token fencing.Token, got redisconn.Reply) {
	vote, err := scripts.Vote(got)
	a.step(func(core *quorum.Attempt) quorum.Requests {
		if err != nil {
			a.errs[node] = err
		}
		return core.Raised(node, token, vote, got.MaybeExecuted)
	})
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
				a.step((*quorum.Attempt).AskRest)
				timer.Reset(limit - first)
				first = 0
				continue
			}
			a.mu.Lock()
			answered := len(a.backend.nodes) - a.core.Pending.Count()
			a.mu.Unlock()
			return fmt.Errorf("%w: %d of %d Redis nodes answered within %v, %d are needed",
				engine.ErrUnavailable, answered, len(a.backend.nodes), limit, a.backend.quorum)
		case <-ctx.Done():
			return engine.Cause(ctx)
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
	return a.core.Outcome, a.core.Token
}

// round describes the attempt for traces.
func (a *attempt) round(began engine.Instant, err error) engine.Round {
	a.mu.Lock()
	defer a.mu.Unlock()
	return engine.Round{Began: began.Time(), Took: a.backend.clock.Now().Since(began), Accepted: a.core.Accepted.Count(),
		Nodes: len(a.backend.nodes), Err: err}
}

// refusal returns the error of an attempt that was not granted. It matches
// engine.ErrHeld, errSplit or engine.ErrUnavailable.
func (a *attempt) refusal() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	refusedWith := func(reason error) bool {
		return slices.ContainsFunc(a.errs, func(err error) bool { return errors.Is(err, reason) })
	}
	switch {
	case quorum.HeldByOther(a.core.Votes):
		return &heldError{freeAfter: quorum.FreeAfter(a.core.Votes)}
	case refusedWith(engine.ErrVersion):
		return a.backend.outdated()
	case refusedWith(engine.ErrHeld) || refusedWith(scripts.ErrLost):
		return errSplit
	}
	a.backend.keeper.notify()
	return a.backend.quorumError(a.errs)
}
