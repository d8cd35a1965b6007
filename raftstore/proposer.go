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
)

const (
	// maxBatch bounds the operations of one entry, maxBatchBytes its size.
	maxBatch      = 4096
	maxBatchBytes = 1 << 20
	// enqueueTimeout bounds how long the engine may take to accept an entry.
	enqueueTimeout = 5 * time.Second
)

// operation is one command on its way through the log; without a command it is
// a barrier.
type operation struct {
	command machine.Command
	term    *leadership // under which it was asked for; nil for Lead
	done    chan outcome
}

type outcome struct {
	result machine.Result
	err    error
}

// batch is the operations of one entry.
type batch struct {
	operations []*operation
	data       []byte // of the entry
	answered   atomic.Bool
}

// answer tells the operations what came of them, once.
func (b *batch) answer(results []machine.Result, err error) {
	if !b.answered.CompareAndSwap(false, true) {
		return
	}
	for _, op := range b.operations {
		switch {
		case err != nil:
			op.done <- outcome{err: err}
		case op.command == nil:
			op.done <- outcome{result: machine.Result{Code: machine.Done}}
		default:
			op.done <- outcome{result: results[0]}
			results = results[1:]
		}
	}
}

// proposer writes operations to the log. One entry is in flight at a time, and
// everything that is asked for meanwhile becomes the next: that is where the
// throughput comes from.
type proposer struct {
	node   *Node
	queue  chan *operation
	flight chan struct{} // held while an entry is in flight
	used   sync.Pool     // of operations whose outcome was taken
	sent   atomic.Pointer[batch]
}

func newProposer(n *Node) *proposer {
	return &proposer{node: n, queue: make(chan *operation, n.config.MaxPending), flight: make(chan struct{}, 1)}
}

// newOperation takes one that was used before, if there is one.
func (p *proposer) newOperation(term *leadership, c machine.Command) *operation {
	op, ok := p.used.Get().(*operation)
	if !ok {
		op = &operation{done: make(chan outcome, 1)}
	}
	op.command, op.term = c, term
	return op
}

// drain lets no further entry out and waits for the one in flight, so that its
// callers are answered: an engine that shuts down may forget it.
func (p *proposer) drain(limit time.Duration) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case p.flight <- struct{}{}:
	case <-p.node.stopped:
	case <-timer.C:
	}
}

// propose commits a command and returns its result. It does not wait for room
// in the queue: a caller that is told ErrBusy knows that nothing has happened.
func (p *proposer) propose(ctx context.Context, term *leadership, c machine.Command) (machine.Result, error) {
	if err := ctx.Err(); err != nil {
		return machine.Result{}, fmt.Errorf("%w: %w", engine.ErrUnavailable, err)
	}
	op := p.newOperation(term, c)
	select {
	case p.queue <- op:
	default:
		return machine.Result{}, ErrBusy
	}
	return p.wait(ctx, op)
}

// wait is the only way to wait for the log: a future of the engine can hang
// when it shuts down (hashicorp/raft 498).
func (p *proposer) wait(ctx context.Context, op *operation) (machine.Result, error) {
	select {
	case out := <-op.done:
		op.command, op.term = nil, nil
		p.used.Put(op)
		return out.result, out.err
	case <-ctx.Done():
		return machine.Result{}, fmt.Errorf("%w: %w", engine.ErrUncertain, context.Cause(ctx))
	case <-p.node.stopped:
		return machine.Result{}, ErrStopped
	}
}

// run is the only goroutine that proposes. Close does not wait for it: it may
// hang in the engine.
func (p *proposer) run() {
	for {
		select {
		case op := <-p.queue:
			p.commit(p.collect(op))
		case <-p.node.stopped:
			return
		}
	}
}

// collect takes what is waiting, up to the size of an entry. The callers that
// the last entry has answered are often about to ask for more, so it lets them
// run, as long as that brings something: else the first of them would go alone
// and all others wait for two entries.
func (p *proposer) collect(first *operation) []*operation {
	asked := []*operation{first}
	size := weight(first.command)
	seen := 0
	for len(asked) < maxBatch && size < maxBatchBytes {
		select {
		case op := <-p.queue:
			asked = append(asked, op)
			size += weight(op.command)
		default:
			if len(asked) == seen {
				return asked
			}
			seen = len(asked)
			runtime.Gosched()
		}
	}
	return asked
}

// weight is about the size of a command in the log.
func weight(c machine.Command) int {
	const fixed = 48
	a, ok := c.(*machine.Acquire)
	if !ok {
		return fixed
	}
	size := fixed + len(a.Request.Holder)
	for _, name := range a.Request.Resources {
		size += len(name)
	}
	for key, value := range a.Request.Metadata {
		size += len(key) + len(value)
	}
	return size
}

// commit writes one entry and answers its operations. What was asked for under
// an earlier leadership is not proposed: nobody knows what has happened since.
func (p *proposer) commit(asked []*operation) {
	current := p.node.leading.Load()
	commands := make([]machine.Command, 0, len(asked))
	b := &batch{operations: asked[:0]}
	for _, op := range asked {
		if op.term != nil && op.term != current {
			op.done <- outcome{err: p.node.notLeader()}
			continue
		}
		b.operations = append(b.operations, op)
		if op.command != nil {
			commands = append(commands, op.command)
		}
	}
	if len(b.operations) == 0 {
		return
	}
	select {
	case p.flight <- struct{}{}:
		defer func() { <-p.flight }()
	case <-p.node.stopped:
		b.answer(nil, ErrStopped)
		return
	}
	sent := p.node.config.Clock.Now()
	b.data = encodeEntry(p.node.fsm.position().link(), commands)
	p.sent.Store(b)
	results, err := responseOf(p.node.raft.Apply(b.data, enqueueTimeout)) // may hang: callers do not wait here
	p.sent.Store(nil)
	switch {
	case err != nil:
		err = p.node.proposalError(err)
	case current != nil:
		current.prove(sent)
	}
	b.answer(results, err)
}

// applied answers the operations of an entry as soon as this node's machine has
// run it: the callers need not wait for the engine to tell the proposer. The
// engine hands the machine the very bytes that were proposed.
func (p *proposer) applied(data []byte, results []machine.Result) {
	if b := p.awaited(data); b != nil {
		b.answer(results, nil)
	}
}

// awaited is the batch of an entry, nil if it is none that was sent here.
func (p *proposer) awaited(data []byte) *batch {
	if b := p.sent.Load(); b != nil && &b.data[0] == &data[0] {
		return b
	}
	return nil
}
