package raftstore

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/machine"
)

// MaxPage is the maximum page size of List.
const MaxPage = 1000

// propose validates a command and commits it, if this node leads.
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

// SetLimits makes this node propose commands with these limits when it leads.
func (n *Node) SetLimits(l machine.Limits) { n.limits.Store(&l) }

// limitsNow returns the limits of SetLimits.
func (n *Node) limitsNow() machine.Limits {
	if l := n.limits.Load(); l != nil {
		return *l
	}
	return machine.Limits{}
}

// open opens a session, or renews it if it is open. It refuses a session that is open with
// a shorter TTL, because the caller would rely on a TTL that the service does not use.
func (n *Node) open(ctx context.Context, config engine.SessionConfig) (machine.SessionInfo, error) {
	arrived := n.config.Clock.Now()
	result, term, err := n.propose(ctx, &machine.OpenSession{Session: config.ID, TTL: config.TTL, User: config.User,
		Limits: n.limitsNow()})
	switch {
	case err != nil:
	case result.Code == machine.Limited:
		err = result.Limit
	case result.Code == machine.OtherUser:
		err = errOtherUser
	}
	if err != nil {
		return machine.SessionInfo{}, err
	}
	var found machine.SessionInfo
	n.fsm.Read(func(m *machine.Machine) { found = m.SessionInfo(config.ID) })
	// Otherwise it has ended since.
	if found.TTL < config.TTL && found.TTL != 0 && found.Incarnation == result.Incarnation {
		return machine.SessionInfo{}, fmt.Errorf("%w: session %s is open with a TTL of %v, not %v; use that TTL, or open "+
			"a session with another id",
			engine.ErrInvalid, config.ID, found.TTL, config.TTL)
	}
	err = n.extend(term, arrived, config.ID, result.Incarnation, config.TTL)
	if err != nil && !errors.Is(err, engine.ErrLost) {
		err = fmt.Errorf("%w: the session is open, but perhaps not renewed: %w", engine.ErrUncertain, err)
	}
	return machine.SessionInfo{TTL: config.TTL, Incarnation: result.Incarnation, User: config.User}, err
}

// errOtherUser reports a session that belongs to another user. It names neither, because
// error texts are written to the audit log.
var errOtherUser = fmt.Errorf("%w: the session belongs to another user; only its owner can use it", engine.ErrForbidden)

// attach renews an open session, for the TTL of config if that is shorter than its own. It never
// opens one. A user other than the owner is refused; without users, config.User is empty, and
// everyone may attach. It needs no log entry for a session that the machine has, if the proof of
// leadership is fresh: like every renewal.
func (n *Node) attach(ctx context.Context, config engine.SessionConfig) (found machine.SessionInfo, err error) {
	arrived, id := n.config.Clock.Now(), config.ID
	look := func(m *machine.Machine) {
		if found = m.SessionInfo(id); engine.MinTTL <= config.TTL && config.TTL < found.TTL {
			found.TTL = config.TTL
		}
	}
	n.fsm.Read(look)
	allowed := func() bool { return config.User == "" || config.User == found.User }
	if term := n.leading.Load(); term != nil && found.Incarnation != 0 && allowed() {
		proved := term.proved()
		err := n.extend(term, arrived, id, found.Incarnation, found.TTL) // it does not expire while this call waits
		if proved && err == nil {
			return found, nil
		}
	}
	if err := n.read(ctx, Linearizable, look); err != nil {
		return machine.SessionInfo{}, err
	}
	if found.TTL == 0 {
		return machine.SessionInfo{}, fmt.Errorf("%w: there is no session %s", engine.ErrExpired, id)
	}
	if !allowed() {
		return machine.SessionInfo{}, errOtherUser
	}
	return found, n.renew(ctx, id, found.Incarnation, found.TTL)
}

// update raises the TTL of a session if ttl is longer, replaces the metadata of a lease unless it
// is empty, and extends the session by ttl. The longer TTL is in the log before anybody relies
// on it: a later leader gives every session what the log says.
func (n *Node) update(ctx context.Context, c *machine.Update) error {
	arrived := n.config.Clock.Now()
	result, term, err := n.propose(ctx, c)
	switch {
	case err != nil:
		return err
	case result.Code == machine.NoSession:
		return engine.ErrExpired
	case result.Code != machine.Done:
		return engine.ErrNotHeld
	}
	return n.extend(term, arrived, c.Session, c.Incarnation, c.TTL)
}

// barrier returns when this node has applied everything that was committed before the
// call. It commits a log entry, shared with concurrent callers: a deposed leader cannot
// commit one. The entry changes nothing, so if its outcome is unknown, another leader can be asked.
func (n *Node) barrier(ctx context.Context) error {
	term := n.leading.Load()
	if term == nil {
		return n.notLeader()
	}
	_, err := n.committer.commit(ctx, term, nil)
	if errors.Is(err, engine.ErrUncertain) && ctx.Err() == nil {
		return n.notLeader()
	}
	return err
}

// Consistency is the consistency of a read.
type Consistency uint8

const (
	// Linearizable reads include everything that was acknowledged before the read. They
	// go through the log.
	Linearizable Consistency = iota
	// Stale reads return the state of this replica, which may be old. They need no
	// leader.
	Stale
)

// read calls look with the machine, at the given consistency.
func (n *Node) read(ctx context.Context, c Consistency, look func(m *machine.Machine)) error {
	if c != Stale {
		if err := n.barrier(ctx); err != nil {
			return err
		}
	}
	n.fsm.Read(look)
	return nil
}

// Inspect returns the holders and waiters of a lock.
func (n *Node) Inspect(ctx context.Context, resource fencing.Resource, c Consistency) (engine.Status, error) {
	if err := resource.Validate(); err != nil {
		return engine.Status{}, err
	}
	var status engine.Status
	var orders []uint64
	if err := n.read(ctx, c, func(m *machine.Machine) {
		status, _, _, orders = m.InspectFirst(resource, math.MaxInt)
	}); err != nil {
		return engine.Status{}, fmt.Errorf("inspect %q: %w", string(resource), err)
	}
	n.addTimes(&status, orders)
	return status, nil
}

// List returns the locks in use whose names begin with prefix and come after the name
// after, in ascending order. A page has at most limit locks, and at most MaxPage. Each
// page is a separate read.
func (n *Node) List(ctx context.Context, prefix string, after fencing.Resource, limit int,
	c Consistency) ([]engine.Status, error) {
	var list []engine.Status
	var orders [][]uint64
	err := n.read(ctx, c, func(m *machine.Machine) {
		for _, name := range m.List(prefix, after, min(limit, MaxPage)) {
			status, _, _, waiters := m.InspectFirst(name, math.MaxInt)
			list, orders = append(list, status), append(orders, waiters)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("list %q: %w", prefix, err)
	}
	for i := range list {
		n.addTimes(&list[i], orders[i])
	}
	return list, nil
}

// InspectFirst returns a lock as this node has applied it, with at most limit holders and
// limit waiters, and the number of all of them.
func (n *Node) InspectFirst(resource fencing.Resource, limit int) (status engine.Status, holders, waiters int) {
	var orders []uint64
	n.fsm.Read(func(m *machine.Machine) { status, holders, waiters, orders = m.InspectFirst(resource, limit) })
	n.addTimes(&status, orders)
	return status, holders, waiters
}

// Summaries returns the locks in use after a name in ascending order, at most MaxPage of
// them, as this node has applied them.
func (n *Node) Summaries(after fencing.Resource) (list []machine.Summary) {
	n.fsm.Read(func(m *machine.Machine) { list = m.Summaries(after, MaxPage) })
	return list
}

// Search returns the locks in use, as this node has applied them, where the name or the user of one of
// their first limit holders or waiters matches.
func (n *Node) Search(matches func(string) bool, limit int) map[fencing.Resource]bool {
	all := map[fencing.Resource]bool{}
	for after, more := fencing.Resource(""), true; more; more = after != "" {
		var page []fencing.Resource
		n.fsm.Read(func(m *machine.Machine) { page, after = m.Search(matches, after, MaxPage, limit) })
		for _, name := range page {
			all[name] = true
		}
	}
	return all
}

// NoteClient notes which client uses a session, for people. Only the leader remembers it.
func (n *Node) NoteClient(id engine.SessionID, client string) {
	n.leading.Load().noteClient(id, client)
}

// addTimes sets the remaining TTL, the last renewal and the client of each holder, which only the
// leader knows, and when holders were granted and waiters were queued.
func (n *Node) addTimes(status *engine.Status, orders []uint64) {
	for i := range status.Holders {
		n.leading.Load().describe(&status.Holders[i])
	}
	if n.config.Times == nil {
		return
	}
	for i := range status.Holders {
		status.Holders[i].Since = n.config.Times.Granted(status.Holders[i].Token)
	}
	for i := range status.Waiters {
		status.Waiters[i].Since = n.config.Times.Queued(orders[i])
	}
}

// Requests returns the number of requests of a session, or engine.ErrNotHeld if there is none.
func (n *Node) Requests(ctx context.Context, id engine.SessionID, c Consistency) (requests int, err error) {
	var open bool
	if err := n.read(ctx, c, func(m *machine.Machine) { requests, open = m.Requests(id) }); err != nil {
		return 0, fmt.Errorf("read session: %w", err)
	}
	if !open {
		return 0, fmt.Errorf("%w: no session %s", engine.ErrNotHeld, id)
	}
	return requests, nil
}
