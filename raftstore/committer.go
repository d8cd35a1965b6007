package raftstore

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/machine"
	"github.com/leased-project/leased/raftstore/proposer"
	"github.com/leased-project/leased/raftstore/replica"
)

// enqueueTimeout bounds the time until the Raft library accepts an entry.
const enqueueTimeout = 5 * time.Second

type (
	operation = proposer.Operation[caller]
	batch     = proposer.Batch[caller]
)

// outcome is the answer to one operation.
type outcome struct {
	result machine.Result
	err    error
}

// reply is a Caller that waits: a channel with room for one outcome.
type reply chan outcome

// Done passes on the outcome.
func (r reply) Done(result machine.Result, err error) { r <- outcome{result, err} }

// Flush does nothing: Done has woken the caller.
func (reply) Flush() {}

// flight is the last proposed entry.
type flight struct {
	*batch
	data     []byte
	answered atomic.Bool
}

// answer sends every caller its outcome, once.
func (f *flight) answer(results []machine.Result, err error) {
	if !f.answered.CompareAndSwap(false, true) {
		return
	}
	if err == nil {
		f.Answer(results, func(c caller, result machine.Result) { c.Done(result, nil) })
	} else {
		for i := range f.Operations {
			f.Operations[i].Caller.Done(machine.Result{}, err)
		}
	}
	for i := range f.Operations {
		f.Operations[i].Caller.Flush()
	}
}

// committer commits operations to the log. proposer.Queue decides what goes into
// an entry; committer adds the lock, the goroutine and the Raft library.
type committer struct {
	node     *Node
	wake     chan struct{} // has room for one
	proposal chan struct{} // held while an entry is in flight
	sent     atomic.Pointer[flight]

	mu     sync.Mutex
	queue  *proposer.Queue[caller]
	closed bool // the node has stopped
}

func newCommitter(n *Node) *committer {
	return &committer{node: n, wake: make(chan struct{}, 1), proposal: make(chan struct{}, 1),
		queue: proposer.NewQueue[caller](n.config.MaxPending)}
}

// drain prevents further proposals and waits for the entry in flight, so that
// its callers are answered: the Raft library may drop it on shutdown.
func (c *committer) drain(limit time.Duration) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case c.proposal <- struct{}{}:
	case <-c.node.stopped:
	case <-timer.C:
	}
}

// commit commits a command and returns its result; without a command it is a
// barrier. term is nil for an operation that needs no leadership. It does not
// wait for room in the queue: after ErrBusy nothing has happened.
func (c *committer) commit(ctx context.Context, term *leadership, command machine.Command) (machine.Result, error) {
	if err := ctx.Err(); err != nil {
		return machine.Result{}, fmt.Errorf("%w: %w", engine.ErrUnavailable, err)
	}
	r := make(reply, 1)
	if err := c.enqueue(term, command, r); err != nil {
		return machine.Result{}, err
	}
	c.wakeUp()
	return c.wait(ctx, r, nil, nil)
}

// enqueue adds an operation to the queue. After an error nothing has happened. The operation
// is proposed after wakeUp, if not earlier.
func (c *committer) enqueue(term *leadership, command machine.Command, r Caller) error {
	op := operation{Command: command, Caller: caller{r, c.node.arrival(command)}}
	if term != nil {
		op.Leadership = term.number
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return ErrStopped
	case !c.queue.Add(op):
		return ErrBusy
	case c.queue.Len() >= proposer.MaxOperations: // they fill an entry
		c.wakeUp()
	}
	return nil
}

// wakeUp makes run look at the queue.
func (c *committer) wakeUp() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// wait waits for the outcome of an operation. It calls notify, on this goroutine, for a value
// of queued, which may be nil. Nothing waits for a future of the Raft library directly, because
// it can hang on shutdown (hashicorp/raft 498).
func (c *committer) wait(ctx context.Context, r reply, queued <-chan struct{}, notify func()) (machine.Result, error) {
	for {
		select {
		case <-queued:
			notify()
		case out := <-r:
			return out.result, out.err
		case <-ctx.Done():
			return machine.Result{}, fmt.Errorf("%w: %w", engine.ErrUncertain, engine.Cause(ctx))
		case <-c.node.stopped:
			return machine.Result{}, ErrStopped
		}
	}
}

// end answers all operations when the node stops: the Raft library may never answer them.
func (c *committer) end() {
	<-c.node.stopped
	c.mu.Lock()
	c.closed = true
	queued := c.queue.Drain()
	c.mu.Unlock()
	for _, op := range queued {
		op.Caller.Done(machine.Result{}, ErrStopped)
		op.Caller.Flush()
	}
	if f := c.sent.Load(); f != nil {
		f.answer(nil, ErrStopped)
	}
}

// run is the only goroutine that proposes. Close does not wait for it: it may hang in the
// Raft library.
func (c *committer) run() {
	for {
		c.gather()
		term := c.node.leading.Load()
		b, refused := c.next(term)
		for _, op := range refused {
			op.Caller.Done(machine.Result{}, c.node.notLeader())
			op.Caller.Flush()
		}
		if b != nil {
			c.propose(term, &flight{batch: b})
			continue
		}
		if len(refused) > 0 {
			continue
		}
		select {
		case <-c.wake:
		case <-c.node.stopped:
			return
		}
	}
}

func (c *committer) next(term *leadership) (*batch, []operation) {
	var number uint64
	if term != nil {
		number = term.number
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.queue.Next(number)
}

// gather yields as long as that adds operations to the queue. The callers of the
// last entry are often about to send the next request. Without gather the first of them
// would get an entry of its own, and all others would wait for two entries.
func (c *committer) gather() {
	for seen := 0; ; runtime.Gosched() {
		c.mu.Lock()
		waiting := c.queue.Len()
		c.mu.Unlock()
		if waiting == seen || waiting >= proposer.MaxOperations {
			return
		}
		seen = waiting
	}
}

// propose writes one entry and answers its operations.
func (c *committer) propose(term *leadership, f *flight) {
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.queue.Done()
	}()
	select {
	case c.proposal <- struct{}{}:
		defer func() { <-c.proposal }()
	case <-c.node.stopped:
		f.answer(nil, ErrStopped)
		return
	}
	sent := c.node.config.Clock.Now()
	f.data = replica.EncodeEntry(c.node.fsm.Chain(), f.Commands)
	c.sent.Store(f)
	select {
	case <-c.node.stopped: // end may have looked before
		f.answer(nil, ErrStopped)
		return
	default:
	}
	results, err := replica.Results(c.node.raft.Apply(f.data, enqueueTimeout)) // may hang: callers do not wait here
	c.sent.Store(nil)
	switch {
	case err != nil:
		err = c.node.proposalError(err)
	default:
		if term != nil {
			term.proven(sent)
		}
		if committed := c.node.config.Hooks.Committed; committed != nil {
			committed(len(f.Operations), c.node.config.Clock.Now().Since(sent))
		}
	}
	f.answer(results, err)
}

// applied answers the operations of an entry as soon as this node's machine has
// applied it, before the Raft library reports the commit.
func (c *committer) applied(data []byte, results []machine.Result) {
	if f := c.inFlight(data); f != nil {
		f.answer(results, nil)
	}
}

// inFlight returns the flight of an entry; nil if this node did not propose it.
// The Raft library passes the proposed bytes to the machine without copying them.
func (c *committer) inFlight(data []byte) *flight {
	if f := c.sent.Load(); f != nil && &f.data[0] == &data[0] {
		return f
	}
	return nil
}
