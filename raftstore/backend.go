package raftstore

import (
	"context"
	"fmt"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/hub"
	"github.com/leased-project/leased/raftstore/machine"
)

// Backend is an engine.Backend on nodes of one cluster in this process. It sends
// every call to the node that leads, once: without a leader the call fails with
// engine.ErrUnavailable, and the caller (lease.Client) tries again.
type Backend struct{ nodes []*Node }

var _ engine.Backend = (*Backend)(nil)

// NewBackend returns a Backend on one or more nodes.
func NewBackend(nodes ...*Node) (*Backend, error) {
	if len(nodes) == 0 {
		return nil, fmt.Errorf("%w: a backend needs a node", ErrConfig)
	}
	return &Backend{nodes: nodes}, nil
}

// leader returns the node that leads.
func (b *Backend) leader() (*Node, error) {
	for _, n := range b.nodes {
		if n.Leads() {
			return n, nil
		}
	}
	return nil, b.nodes[0].notLeader()
}

// Open opens a session. The result is a *Session.
func (b *Backend) Open(ctx context.Context, config engine.SessionConfig) (engine.Session, error) {
	s, err := b.begin(ctx, config, func(n *Node) (machine.SessionInfo, error) { return n.open(ctx, config) })
	if err != nil {
		return nil, fmt.Errorf("open session: %w", err)
	}
	return s, nil
}

// Attach returns an open session, no matter which process opened it, and renews it. It
// never opens one: if there is none, or if it ends meanwhile, Attach returns
// engine.ErrExpired. If config names a user that does not own the session, Attach returns
// engine.ErrForbidden. A TTL in config that is shorter than that of the session is what renewals
// give it from here on: an Update for longer is over once its time has passed.
func (b *Backend) Attach(ctx context.Context, config engine.SessionConfig) (*Session, error) {
	s, err := b.begin(ctx, config, func(n *Node) (machine.SessionInfo, error) { return n.attach(ctx, config) })
	if err != nil {
		return nil, fmt.Errorf("attach session: %w", err)
	}
	return s, nil
}

// begin registers a listener for losses, opens or finds the session with find, and then
// sets the incarnation of the listener.
func (b *Backend) begin(ctx context.Context, config engine.SessionConfig, find func(*Node) (machine.SessionInfo,
	error)) (*Session, error) {
	if config.Clock == nil {
		config.Clock = engine.SystemClock()
	}
	s := &Session{backend: b, config: config, sent: config.Clock.Now()}
	if config.Lost != nil {
		s.listener = &hub.Listener{Lost: config.Lost}
		for _, n := range b.nodes {
			n.hub.Listen(config.ID, s.listener)
		}
	}
	leader, err := b.leader()
	var found machine.SessionInfo
	if err == nil {
		found, err = find(leader)
	}
	if err != nil {
		s.Detach()
		return nil, err
	}
	s.number, s.config.TTL, s.config.User = found.Incarnation, found.TTL, found.User
	if s.listener != nil {
		for _, n := range b.nodes {
			n.identify(config.ID, s.listener, s.number)
		}
	}
	return s, nil
}

// identify sets the incarnation of a listener and reports the losses that it has missed.
func (n *Node) identify(id engine.SessionID, l *hub.Listener, incarnation uint64) {
	var later []func()
	n.fsm.Read(func(m *machine.Machine) { later = n.hub.Identify(id, l, incarnation, m) })
	for _, tell := range later {
		tell()
	}
}

// Inspect returns the holders and waiters of a lock.
func (b *Backend) Inspect(ctx context.Context, resource fencing.Resource) (engine.Status, error) {
	leader, err := b.leader()
	if err != nil {
		return engine.Status{}, err
	}
	return leader.Inspect(ctx, resource, Linearizable)
}

// Watch calls changed with the current status and after each change. It returns an error
// if there is no leader.
func (b *Backend) Watch(ctx context.Context, resource fencing.Resource, changed func(engine.Status)) error {
	w := hub.NewWatcher()
	for _, n := range b.nodes {
		defer n.hub.Watch(resource, w)()
	}
	return w.Follow(ctx, func() (engine.Status, error) { return b.Inspect(ctx, resource) }, changed)
}

// Break ends a lease on behalf of an operator. It returns engine.ErrNotHeld if the lock
// has no holder with this token.
func (b *Backend) Break(ctx context.Context, resource fencing.Resource, token fencing.Token) error {
	leader, err := b.leader()
	if err != nil {
		return err
	}
	result, _, err := leader.propose(ctx, &machine.Break{Resource: resource, Token: token})
	if err == nil && result.Code != machine.Done {
		err = fmt.Errorf("%w with token %d", engine.ErrNotHeld, token)
	}
	if err != nil {
		return fmt.Errorf("break %q: %w", string(resource), err)
	}
	return nil
}
