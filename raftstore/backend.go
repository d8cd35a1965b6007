package raftstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/machine"
)

const (
	// DefaultPatience is how long a Backend looks for a leader before it says
	// that there is none: about two elections.
	DefaultPatience = 3 * time.Second
	// searchPause is the time between two looks.
	searchPause = 5 * time.Millisecond
)

// Backend is a engine.Backend on nodes of one cluster in this process. It asks
// the one that leads. When the leader changes under an operation it asks the
// next one, with the same nonce, so that the outcome is one all the same.
type Backend struct {
	nodes    []*Node
	patience time.Duration
}

var _ engine.Backend = (*Backend)(nil)

// BackendOption changes a Backend.
type BackendOption func(*Backend) error

// WithPatience sets how long the Backend looks for a leader.
func WithPatience(d time.Duration) BackendOption {
	return func(b *Backend) error {
		if d < 0 {
			return fmt.Errorf("%w: patience (%v) must not be negative", ErrConfig, d)
		}
		b.patience = d
		return nil
	}
}

// NewBackend returns a Backend on one or more nodes.
func NewBackend(nodes []*Node, options ...BackendOption) (*Backend, error) {
	if len(nodes) == 0 {
		return nil, fmt.Errorf("%w: a backend needs a node", ErrConfig)
	}
	b := &Backend{nodes: nodes, patience: DefaultPatience}
	for _, option := range options {
		if err := option(b); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// do runs call on the leader, and again on the next leader while it fails for
// want of one. Once an outcome was uncertain it stays so, until a later call
// has found out.
func (b *Backend) do(ctx context.Context, call func(n *Node) error) error {
	err := b.once(call)
	if err == nil || !b.worthAnother(ctx, err) {
		return err
	}
	patience := time.NewTimer(b.patience)
	defer patience.Stop()
	search := time.NewTicker(searchPause)
	defer search.Stop()
	var uncertain error
	for {
		if errors.Is(err, engine.ErrUncertain) {
			uncertain = err
		}
		select {
		case <-search.C:
			if err = b.once(call); err == nil || !b.worthAnother(ctx, err) {
				return inDoubt(uncertain, err)
			}
			continue
		case <-patience.C:
		case <-ctx.Done():
			err = fmt.Errorf("%w (last: %w)", context.Cause(ctx), err)
		}
		if uncertain != nil && !errors.Is(err, engine.ErrUncertain) {
			err = fmt.Errorf("%w, then %w", uncertain, err)
		}
		return err
	}
}

// inDoubt keeps what an earlier call left open: that the last one has certainly
// done nothing says nothing of it. An answer of the machine does.
func inDoubt(uncertain, last error) error {
	if uncertain != nil && errors.Is(last, engine.ErrUnavailable) && !errors.Is(last, engine.ErrUncertain) {
		return fmt.Errorf("%w, then %w", uncertain, last)
	}
	return last
}

func (b *Backend) once(call func(n *Node) error) error {
	for _, n := range b.nodes {
		if n.Leads() {
			return call(n)
		}
	}
	return b.nodes[0].notLeader()
}

// worthAnother reports whether another leader, or the same one a little later,
// may answer. A move takes too long for that.
func (b *Backend) worthAnother(ctx context.Context, err error) bool {
	var moving *engine.MigratingError
	if ctx.Err() != nil || errors.Is(err, ErrBusy) || errors.As(err, &moving) {
		return false
	}
	return errors.Is(err, engine.ErrUnavailable) || errors.Is(err, engine.ErrUncertain)
}

// Open starts a session, which is a *Session.
func (b *Backend) Open(ctx context.Context, config engine.SessionConfig) (engine.Session, error) {
	s, err := b.begin(ctx, config, func(n *Node) (machine.SessionInfo, error) { return n.open(ctx, config) })
	if err != nil {
		return nil, fmt.Errorf("open session: %w", err)
	}
	return s, nil
}

// Attach finds a session that is open, whoever has opened it, and renews it. It
// never opens one: if there is none, or it ends meanwhile, that is
// engine.ErrExpired. The TTL of config does not matter.
func (b *Backend) Attach(ctx context.Context, config engine.SessionConfig) (*Session, error) {
	s, err := b.begin(ctx, config, func(n *Node) (machine.SessionInfo, error) { return n.attach(ctx, config.ID) })
	if err != nil {
		return nil, fmt.Errorf("attach session: %w", err)
	}
	return s, nil
}

// begin listens for losses, then has find open or find the session, then says
// which incarnation it is that listens.
func (b *Backend) begin(ctx context.Context, config engine.SessionConfig, find func(*Node) (machine.SessionInfo, error)) (*Session, error) {
	if config.Clock == nil {
		config.Clock = engine.SystemClock()
	}
	s := &Session{backend: b, config: config, sent: config.Clock.Now()}
	if config.Lost != nil {
		s.listener = &listener{lost: config.Lost}
		for _, n := range b.nodes {
			n.hub.listen(config.ID, s.listener)
		}
	}
	err := b.do(ctx, func(n *Node) error {
		found, err := find(n)
		s.number, s.config.TTL = found.Incarnation, found.TTL
		return err
	})
	if err != nil {
		s.unlisten()
		return nil, err
	}
	if s.listener != nil {
		for _, n := range b.nodes {
			n.identify(config.ID, s.listener, s.number)
		}
	}
	return s, nil
}

// identify says which incarnation of a session a listener is of, and tells it
// what it has missed.
func (n *Node) identify(id engine.SessionID, l *listener, incarnation uint64) {
	var later []func()
	n.fsm.read(func(m *machine.Machine) { later = n.hub.identify(id, l, incarnation, m) })
	for _, tell := range later {
		tell()
	}
}

// Inspect tells who holds a lock and who waits for it.
func (b *Backend) Inspect(ctx context.Context, resource fencing.Resource) (status engine.Status, err error) {
	err = b.do(ctx, func(n *Node) error {
		status, err = n.Inspect(ctx, resource, Linearizable)
		return err
	})
	return status, err
}

// Watch tells the status now and after each change. While there is no leader it
// waits for one.
func (b *Backend) Watch(ctx context.Context, resource fencing.Resource, changed func(engine.Status)) error {
	if err := resource.Validate(); err != nil {
		return err
	}
	w := &watcher{changed: make(chan struct{}, 1)}
	w.poke()
	for _, n := range b.nodes {
		defer n.hub.watch(resource, w)()
	}
	for {
		select {
		case <-w.changed:
			status, err := b.Inspect(ctx, resource)
			switch {
			case err == nil:
				changed(status)
			case ctx.Err() != nil:
				return context.Cause(ctx)
			case b.worthAnother(ctx, err):
				time.AfterFunc(searchPause, w.poke)
			default:
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Break takes a lease away from its holder. If the first call left its outcome
// open, that the token is held no more is what was wanted.
func (b *Backend) Break(ctx context.Context, resource fencing.Resource, token fencing.Token) error {
	doubtful := false
	return b.do(ctx, func(n *Node) error {
		result, _, err := n.propose(ctx, &machine.Break{Resource: resource, Token: token})
		doubtful = doubtful || errors.Is(err, engine.ErrUncertain)
		if err == nil && result.Code != machine.Done && !doubtful {
			err = fmt.Errorf("%w with token %d", engine.ErrNotHeld, token)
		}
		if err != nil {
			return fmt.Errorf("break %q: %w", string(resource), err)
		}
		return nil
	})
}
