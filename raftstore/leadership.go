package raftstore

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/machine"
)

// leadership is one time of this node as leader, from its Lead in the log on.
type leadership struct {
	generation uint64
	lost       chan struct{} // closed when it is over

	mu     sync.Mutex
	proven engine.Instant // before the last entry that was committed was sent
}

// prove notes that this node still led at a moment.
func (t *leadership) prove(at engine.Instant) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.proven = at
}

// age is how old the last proof is.
func (t *leadership) age(now engine.Instant) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return now.Since(t.proven)
}

// watchLeadership follows the engine until the node stops.
func (n *Node) watchLeadership() {
	for {
		select {
		case leads := <-n.notify:
			if leads {
				n.takeOver()
			} else {
				n.stepDown()
			}
		case <-n.stopped:
			n.stepDown()
			return
		}
	}
}

// takeOver makes a node that the engine has elected serve: Lead is committed,
// which ends whatever former leaders decided, then every session has its full
// time again, then calls are let in. It gives up when the engine does. A node
// that has not caught up was elected by nobody but its own past.
func (n *Node) takeOver() {
	n.leadMu.Lock()
	defer n.leadMu.Unlock()
	n.retire()
	n.progress.begin()
	if n.CatchingUp() {
		n.logger.Error("does not lead: it has not caught up since it joined")
		return
	}
	for n.raft.State() == raft.Leader {
		sent := n.config.Clock.Now()
		result, err := n.proposer.propose(context.Background(), nil, &machine.Lead{})
		if err == nil && n.serve(result.Generation, sent) {
			n.logger.Info("leads", "generation", result.Generation, "term", n.raft.CurrentTerm())
			return
		}
		if errors.Is(err, ErrStopped) {
			return
		}
		n.logger.Warn("cannot lead yet", "error", err)
		select {
		case <-time.After(retryPause):
		case <-n.stopped:
			return
		}
	}
}

// serve begins a leadership, unless the machine has seen another since.
func (n *Node) serve(generation uint64, sent engine.Instant) bool {
	term := &leadership{generation: generation, lost: make(chan struct{}), proven: sent}
	current := false
	n.fsm.read(func(m *machine.Machine) {
		if current = m.Generation() == generation; current {
			n.lessor.begin(term, m.Sessions(), m.Delays(), proofLife)
		}
	})
	if current {
		n.leading.Store(term)
	}
	return current
}

// stepDown stops serving.
func (n *Node) stepDown() {
	n.leadMu.Lock()
	defer n.leadMu.Unlock()
	if n.retire() {
		n.logger.Info("leads no more")
	}
}

// retire ends a leadership, if there is one. The caller holds leadMu.
func (n *Node) retire() bool {
	term := n.leading.Swap(nil)
	if term == nil {
		return false
	}
	n.lessor.end()
	close(term.lost)
	return true
}

// proofLife is how long a committed entry proves that a node leads, and what a
// new leader adds to the time of every session for what its predecessor may have
// promised last. It is the same on all nodes, whatever their timings, and must
// stay the same from one release to the next: a leader that took longer than
// its successor allows would promise time that is not there.
const proofLife = 500 * time.Millisecond

// renew prolongs a session. It is in memory, but only a node that can show that
// it still leads may promise anything: a leader whose last proof is too old
// first commits an empty entry, one for all who renew at that time.
func (n *Node) renew(ctx context.Context, id engine.SessionID, incarnation uint64) error {
	term := n.leading.Load()
	if term == nil {
		return n.notLeader()
	}
	if term.age(n.config.Clock.Now()) >= proofLife {
		if _, err := n.proposer.propose(ctx, term, nil); err != nil {
			return err
		}
	}
	return n.prolong(term, id, incarnation)
}

func (n *Node) prolong(term *leadership, id engine.SessionID, incarnation uint64) error {
	if n.lessor.renew(term, id, incarnation) {
		return nil
	}
	if n.leading.Load() != term {
		return n.notLeader()
	}
	return engine.ErrExpired
}

// expire proposes what the lessor found to have run out, and returns what it
// could not.
func (n *Node) expire(term *leadership, commands []machine.Command) (failed []machine.Command) {
	pending := make([]*operation, len(commands))
	for i, c := range commands {
		op := n.proposer.newOperation(term, c)
		pending[i] = op
		select {
		case n.proposer.queue <- op:
		case <-n.stopped:
			return nil
		}
	}
	for i, op := range pending {
		if _, err := n.proposer.wait(context.Background(), op); err != nil {
			failed = append(failed, commands[i])
		}
	}
	return failed
}
