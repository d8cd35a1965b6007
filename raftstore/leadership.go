package raftstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/lessor"
	"github.com/leased-project/leased/raftstore/machine"
)

// leadership is one period in which this node leads and serves. It guards the
// pure lessor.Lessor with a lock and runs it on the node's clock.
type leadership struct {
	number     uint64 // unique in this process; not 0
	generation uint64 // of its Lead in the log
	clock      engine.Clock
	lost       chan struct{} // closed when it is over
	wake       chan struct{} // has room for one

	mu     sync.Mutex
	lessor *lessor.Lessor
}

// newLeadership begins a leadership, whose Lead was proposed at sent. adopt must follow.
func (n *Node) newLeadership(m *machine.Machine, sent engine.Instant) *leadership {
	return &leadership{number: n.leaderships.Add(1), generation: m.Generation(), clock: n.config.Clock,
		lost: make(chan struct{}), wake: make(chan struct{}, 1),
		lessor: lessor.New(n.config.Clock.Now(), sent, m.Generation(), m.HasEnding(), lessor.ProofLife)}
}

// adoptPiece is the number of sessions, and of lock-delays, that a new leader takes over without a pause.
const adoptPiece = 1000

// adopt takes over the next sessions and lock-delays of m. It returns false if there are no more.
// The caller holds fsm.mu, so that no session ends meanwhile.
func (t *leadership) adopt(m *machine.Machine) (more bool) {
	now := t.clock.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	defer t.notify()
	return t.lessor.Adopt(now, m, adoptPiece)
}

// adoptOne takes over one session of m, if adopt has not done it yet. The caller holds
// fsm.mu.
func (t *leadership) adoptOne(m *machine.Machine, id engine.SessionID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lessor.AdoptOne(m, id)
}

// proven records that an entry proposed at sent has committed.
func (t *leadership) proven(sent engine.Instant) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lessor.Proven(sent)
}

// proved reports whether the last proof of leadership is fresh.
func (t *leadership) proved() bool {
	now := t.clock.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lessor.Proved(now)
}

// renew gives a session a TTL from the arrival of its renewal, its own one for 0; false if it
// has ended. known is false if the session may not be adopted yet.
func (t *leadership) renew(arrived engine.Instant, id engine.SessionID, incarnation uint64, ttl time.Duration) (renewed,
	known bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	renewed = t.lessor.Renew(arrived, id, incarnation, ttl)
	return renewed, renewed || t.lessor.HasAll()
}

// describe sets what the leader knows about the session of a holder. A nil leadership knows nothing.
func (t *leadership) describe(p *engine.Party) {
	if t == nil {
		return
	}
	now := t.clock.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	p.TTL = t.lessor.Left(now, p.Session)
	p.Renewed, p.Client = t.lessor.LastUse(now, p.Session)
}

// noteClient notes which client uses a session.
func (t *leadership) noteClient(id engine.SessionID, client string) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lessor.NoteClient(id, client)
}

// applied updates the deadlines after a command was applied. The caller holds fsm.mu.
func (t *leadership) applied(c machine.Command, result machine.Result, events []machine.Event) {
	if t == nil || !lessor.Affects(c, events) {
		return
	}
	now := t.clock.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lessor.Applied(now, c, result, events)
	t.notify()
}

// notify makes expireSessions look at the deadlines again.
func (t *leadership) notify() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// due returns the commands that are due and the time until the next ones are.
func (t *leadership) due() ([]machine.Command, time.Duration) {
	now := t.clock.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lessor.Due(now)
}

// failed makes commands due again that could not be committed.
func (t *leadership) failed(commands []machine.Command) {
	if len(commands) == 0 {
		return
	}
	now := t.clock.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lessor.Failed(now, commands)
	t.notify()
}

// expireSessions commits the commands that are due, until the leadership is over. It commits
// one set of them at a time, so that the commands of others come in between.
func (n *Node) expireSessions(t *leadership) {
	timer := time.NewTimer(lessor.Idle)
	defer timer.Stop()
	committed := make(chan struct{})
	for {
		commands, wait := t.due()
		wake := t.wake
		if len(commands) > 0 {
			wait, wake = lessor.Idle, nil
			go func() {
				t.failed(n.commitAll(t, commands))
				select {
				case committed <- struct{}{}:
				case <-t.lost:
				case <-n.stopped:
				}
			}()
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-wake:
		case <-committed:
		case <-t.lost:
			return
		case <-n.stopped:
			return
		}
	}
}

// commitAll commits commands and returns those that failed.
func (n *Node) commitAll(t *leadership, commands []machine.Command) (failed []machine.Command) {
	replies := make([]reply, len(commands))
	for i, c := range commands {
		if r := make(reply, 1); n.committer.enqueue(t, c, r) == nil {
			replies[i] = r
		} else {
			failed = append(failed, c)
		}
	}
	n.committer.wakeUp()
	for i, r := range replies {
		if r == nil {
			continue
		}
		if _, err := n.committer.wait(context.Background(), r, nil, nil); err != nil {
			failed = append(failed, commands[i])
		}
	}
	return failed
}

// watchLeadership follows the leadership changes of the Raft library until the node stops.
func (n *Node) watchLeadership() {
	for {
		select {
		case leads := <-n.notify:
			if leads {
				n.takeOver()
			} else {
				n.stepDown("it lost an election, or the majority")
			}
		case <-n.stopped:
			n.stepDown("the node stops")
			return
		}
	}
}

// takeOver makes an elected node serve. It commits Lead, which voids the decisions of former
// leaders, gives every session its full TTL again, and then accepts calls. It stops when
// the node loses the leadership. A node that has not caught up does not serve: it was
// elected under an outdated configuration.
func (n *Node) takeOver() {
	n.leadMu.Lock()
	defer n.leadMu.Unlock()
	n.retire()
	n.progress.Reset()
	if n.CatchingUp() {
		n.logger.Error("elected, but does not serve: it has not caught up since it joined")
		return
	}
	for n.raft.State() == raft.Leader {
		sent := n.config.Clock.Now()
		result, err := n.committer.commit(context.Background(), nil, &machine.Lead{})
		if err == nil && n.serve(result.Generation, sent) {
			n.admission.committed.led(sent)
			n.elected(result.Generation)
			return
		}
		if errors.Is(err, ErrStopped) {
			return
		}
		n.logger.Warn("cannot serve as leader yet", "error", err)
		select {
		case <-time.After(lessor.RetryPause):
		case <-n.stopped:
			return
		}
	}
}

// serve starts a leadership, unless the machine has applied another Lead since. The
// deadlines start before the first call is accepted, and under the lock of the machine,
// so that no command is applied in between.
func (n *Node) serve(generation uint64, sent engine.Instant) (serves bool) {
	n.fsm.Read(func(m *machine.Machine) {
		if m.Generation() != generation {
			return
		}
		term := n.newLeadership(m, sent)
		more := term.adopt(m)
		n.leading.Store(term)
		if more {
			go n.adoptSessions(term)
		}
		go n.expireSessions(term)
		serves = true
	})
	return serves
}

// adoptSessions takes over the sessions and lock-delays of the machine in pieces, until the leadership is over.
func (n *Node) adoptSessions(term *leadership) {
	for more := true; more && n.leading.Load() == term; {
		n.fsm.Read(func(m *machine.Machine) { more = term.adopt(m) })
	}
}

// stepDown stops serving.
func (n *Node) stepDown(why string) {
	n.leadMu.Lock()
	defer n.leadMu.Unlock()
	if n.retire() {
		n.deposed(why)
	}
}

// retire ends a leadership, if there is one. The caller holds leadMu.
func (n *Node) retire() bool {
	term := n.leading.Swap(nil)
	if term == nil {
		return false
	}
	close(term.lost)
	n.hub.Abort(errWaitEnded)
	return true
}

// renew extends a session to ttl from now. The log does not record it, so only a node with a fresh proof of
// leadership may do that: a leader whose last proof is too old first commits a barrier,
// shared by concurrent renewals. The TTL counts from the arrival of the renewal: the session
// does not expire while its renewal waits for the barrier.
func (n *Node) renew(ctx context.Context, id engine.SessionID, incarnation uint64, ttl time.Duration) error {
	arrived := n.config.Clock.Now()
	term := n.leading.Load()
	if term == nil {
		return n.notLeader()
	}
	if !term.proved() {
		_ = n.extend(term, arrived, id, incarnation, ttl)
		if err := n.barrier(ctx); err != nil {
			return err
		}
	}
	return n.extend(term, arrived, id, incarnation, ttl)
}

// extend is renew for a caller that has a proof of leadership. With a ttl it extends the session
// by that.
func (n *Node) extend(term *leadership, arrived engine.Instant, id engine.SessionID, incarnation uint64,
	ttl time.Duration) error {
	if n.leading.Load() != term {
		return n.notLeader()
	}
	renewed, known := term.renew(arrived, id, incarnation, ttl)
	if !known {
		n.fsm.Read(func(m *machine.Machine) { term.adoptOne(m, id) })
		renewed, _ = term.renew(arrived, id, incarnation, ttl)
	}
	if !renewed {
		return engine.ErrExpired
	}
	return nil
}

const (
	// LeaderTimeout bounds the wait of AwaitLeader: about two elections.
	LeaderTimeout = 3 * time.Second
	// leaderPoll is the time between two checks for a leader.
	leaderPoll = 10 * time.Millisecond
)

// AwaitLeader waits until this node leads and serves, or knows the API address of another leader (see SetMemberAPI).
// It returns the leader's ID and API address. After LeaderTimeout, when ctx ends, or if this node was removed from
// the cluster, it returns a NotLeaderError.
func (n *Node) AwaitLeader(ctx context.Context) (id, api string, err error) {
	if id, api := n.knownLeader(); id != "" {
		return id, api, nil
	}
	ctx, cancel := context.WithTimeout(ctx, LeaderTimeout)
	defer cancel()
	poll := time.NewTicker(leaderPoll)
	defer poll.Stop()
	for {
		if id, api := n.knownLeader(); id != "" {
			return id, api, nil
		}
		if n.Removed() {
			return "", "", n.notLeader()
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			return "", "", fmt.Errorf("%w: %w", n.notLeader(), engine.Cause(ctx))
		case <-n.stopped:
			return "", "", ErrStopped
		}
	}
}

// knownLeader returns this node if it leads and serves, another leader whose API address it knows, or "".
func (n *Node) knownLeader() (id, api string) {
	if n.Leads() {
		return n.ID(), n.MemberAPI(n.ID())
	}
	if id, _ := n.Leader(); id != "" && id != n.ID() {
		if api := n.MemberAPI(id); api != "" {
			return id, api
		}
	}
	return "", ""
}
