package raftstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/hub"
	"github.com/leased-project/leased/raftstore/machine"
)

// MaxPage is the largest page of List.
const MaxPage = 1000

// propose commits a command on this node, if it leads.
func (n *Node) propose(ctx context.Context, c machine.Command) (machine.Result, *leadership, error) {
	if err := machine.Validate(c); err != nil {
		return machine.Result{}, nil, err
	}
	term := n.leading.Load()
	if term == nil {
		return machine.Result{}, nil, n.notLeader()
	}
	result, err := n.committer.commit(ctx, term, c)
	return result, term, err
}

// open makes a session known, or finds it again and renews it. One that is open
// with another time is not the caller's, or the caller would count on a time
// that the service does not give.
func (n *Node) open(ctx context.Context, config engine.SessionConfig) (machine.SessionInfo, error) {
	result, term, err := n.propose(ctx, &machine.OpenSession{Session: config.ID, TTL: config.TTL})
	if err != nil {
		return machine.SessionInfo{}, err
	}
	var found machine.SessionInfo
	n.fsm.Read(func(m *machine.Machine) { found = m.SessionInfo(config.ID) })
	if found.TTL != config.TTL && found.TTL != 0 && found.Incarnation == result.Incarnation { // else it has ended since
		return machine.SessionInfo{}, fmt.Errorf("%w: session %s is open with a TTL of %v, not %v; open it with that, or take a new session",
			engine.ErrInvalid, config.ID, found.TTL, config.TTL)
	}
	err = n.extend(term, config.ID, result.Incarnation)
	if err != nil && !errors.Is(err, engine.ErrLost) {
		err = fmt.Errorf("%w: it is open, but perhaps not renewed: %w", engine.ErrUncertain, err)
	}
	return machine.SessionInfo{TTL: config.TTL, Incarnation: result.Incarnation}, err
}

// attach finds a session that is open, and renews it. It never opens one.
func (n *Node) attach(ctx context.Context, id engine.SessionID) (found machine.SessionInfo, err error) {
	if err := n.read(ctx, Linearizable, func(m *machine.Machine) { found = m.SessionInfo(id) }); err != nil {
		return machine.SessionInfo{}, err
	}
	if found.TTL == 0 {
		return machine.SessionInfo{}, fmt.Errorf("%w: there is no session %s", engine.ErrExpired, id)
	}
	return found, n.renew(ctx, id, found.Incarnation)
}

// acquire asks for a grant, and waits for it if the request says so.
func (n *Node) acquire(ctx context.Context, id engine.SessionID, incarnation uint64, request engine.Request) (machine.Result, error) {
	result, term, err := n.propose(ctx, &machine.Acquire{Session: id, Incarnation: incarnation, Request: request})
	if err != nil || result.Code != machine.Queued || !request.Wait {
		return result, err
	}
	if request.Queued != nil {
		request.Queued()
	}
	return n.await(ctx, term, hub.Attempt{Session: id, Incarnation: incarnation, Nonce: request.Nonce}, request.Resources)
}

// await waits for the turn of an attempt that is in the queue. That this node
// leads no more is no reason to leave the queue: the caller asks the next
// leader with the same nonce, and finds its place.
func (n *Node) await(ctx context.Context, term *leadership, a hub.Attempt, resources []fencing.Resource) (result machine.Result, err error) {
	w := n.hub.Expect(a)
	defer n.hub.Leave(a, w)
	n.fsm.Read(func(m *machine.Machine) {
		result = hub.OutcomeOf(m, a)
		if routable := m.Routable(resources); result.Code == machine.Ended && routable.Code != machine.Done {
			result = routable // a move took it out of the queue
		}
	})
	if result.Code != machine.Queued { // its turn came before it was expected here
		return result, nil
	}
	select {
	case <-w.Ready():
		return w.Result()
	case <-ctx.Done():
		return machine.Result{}, fmt.Errorf("%w: %w", engine.ErrUncertain, context.Cause(ctx))
	case <-term.lost:
		return machine.Result{}, fmt.Errorf("%w: the leader has changed, and the attempt waits on; ask again with the same nonce", engine.ErrUncertain)
	case <-n.stopped:
		return machine.Result{}, ErrStopped
	}
}

// barrier returns when everything that was committed before it was called has
// been applied here. It is an entry of the log, shared by all who ask at that
// time: an engine that only believes it leads cannot commit one.
func (n *Node) barrier(ctx context.Context) error {
	term := n.leading.Load()
	if term == nil {
		return n.notLeader()
	}
	_, err := n.committer.commit(ctx, term, nil)
	return err
}

// Consistency is what a read may show.
type Consistency uint8

const (
	// Linearizable shows everything that was acknowledged before the read
	// began. It goes through the log.
	Linearizable Consistency = iota
	// Stale shows what this replica has, however old that is. It needs no
	// leader.
	Stale
)

// read looks at the machine.
func (n *Node) read(ctx context.Context, c Consistency, look func(m *machine.Machine)) error {
	if c != Stale {
		if err := n.barrier(ctx); err != nil {
			return err
		}
	}
	n.fsm.Read(look)
	return nil
}

// Inspect tells who holds a lock and who waits for it.
func (n *Node) Inspect(ctx context.Context, resource fencing.Resource, c Consistency) (engine.Status, error) {
	if err := resource.Validate(); err != nil {
		return engine.Status{}, err
	}
	var status engine.Status
	if err := n.read(ctx, c, func(m *machine.Machine) { status = m.Inspect(resource) }); err != nil {
		return engine.Status{}, fmt.Errorf("inspect %q: %w", string(resource), err)
	}
	n.addTimes(&status)
	return status, nil
}

// List tells of the locks in use whose names begin with prefix, in ascending
// order, beginning after the name after. A page has at most limit of them, and
// at most MaxPage; pages are read one by one, each at a moment of its own.
func (n *Node) List(ctx context.Context, prefix string, after fencing.Resource, limit int, c Consistency) ([]engine.Status, error) {
	var list []engine.Status
	if err := n.read(ctx, c, func(m *machine.Machine) { list = m.List(prefix, after, min(limit, MaxPage)) }); err != nil {
		return nil, fmt.Errorf("list %q: %w", prefix, err)
	}
	for i := range list {
		n.addTimes(&list[i])
	}
	return list, nil
}

// addTimes fills in the time that each holder has left, which only the leader
// knows.
func (n *Node) addTimes(status *engine.Status) {
	for i := range status.Holders {
		status.Holders[i].TTL = n.leading.Load().left(status.Holders[i].Session)
	}
}

// Session tells of a session and everything in it; engine.ErrNotHeld if there is
// none.
func (n *Node) Session(ctx context.Context, id engine.SessionID, c Consistency) ([]machine.Request, error) {
	var requests []machine.Request
	var ok bool
	if err := n.read(ctx, c, func(m *machine.Machine) { _, requests, ok = m.Session(id) }); err != nil {
		return nil, fmt.Errorf("read session: %w", err)
	}
	if !ok {
		return nil, fmt.Errorf("%w: no session %s", engine.ErrNotHeld, id)
	}
	for i := range requests {
		if requests[i].Party.Token != fencing.None {
			requests[i].Party.TTL = n.leading.Load().left(id)
		}
	}
	return requests, nil
}
