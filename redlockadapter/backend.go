package redlockadapter

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/redlockadapter/quorum"
)

// Backend is a lease.Backend over N Redis masters. All methods may be called
// concurrently. Close it when done.
type Backend struct {
	config  Config
	keys    keys
	process string      // the name of this process, among those who wait and in the names of attempts
	clock   lease.Clock // for what no session's clock is at hand
	quorum  int

	nodes  []*node
	lanes  []*lane
	epochs *epochs
	queues *queues

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wakers sync.WaitGroup

	mu       sync.Mutex
	closed   bool
	sessions map[lease.SessionID]*session
}

var _ lease.Backend = (*Backend)(nil)

// wallClock is the time that people and Redis servers know. Only skew and the
// operator's epochs depend on it.
func wallClock() time.Time { return lease.MonotonicClock().Now().Time() }

func newBackend(config Config) *Backend {
	b := &Backend{config: config, keys: keysOf(config.Namespace), process: lease.NewSessionID().String()[:16],
		clock:  lease.MonotonicClock(),
		quorum: quorum.Size(len(config.Nodes)), sessions: map[lease.SessionID]*session{}}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	b.epochs = newEpochs(b)
	b.queues = newQueues(b)
	for i, options := range config.Nodes {
		n := newNode(config, options, b.epochs.poke)
		b.nodes = append(b.nodes, n)
		b.lanes = append(b.lanes, newLane(b, i, n))
	}
	return b
}

// New connects to the nodes and checks that they can be relied on. A node that
// is out of reach is no error while a majority is not; a node that is not fit to
// vote is, see ErrNodeSetup. Nodes that were never initialised are no error
// either: acquiring is, see Init.
func New(ctx context.Context, config Config) (*Backend, error) {
	config = config.filled()
	if err := config.validate(); err != nil {
		return nil, err
	}
	b := newBackend(config)
	if err := b.check(ctx); err != nil {
		b.closeClients()
		return nil, err
	}
	b.epochs.look(ctx)
	go b.epochs.run(b.ctx)
	b.connectAll()
	return b, nil
}

// connectAll makes the lanes and begins to hear wake-ups, and gives the nodes a
// moment to confirm: who waits before that waits for its timer.
func (b *Backend) connectAll() {
	var asked sync.WaitGroup
	asked.Add(2 * len(b.nodes))
	for i, n := range b.nodes {
		go b.lanes[i].run(asked.Done)
		b.wakers.Go(func() { b.listen(i, n, asked.Done) })
	}
	all := make(chan struct{})
	go func() { asked.Wait(); close(all) }()
	select {
	case <-all:
	case <-time.After(b.config.NodeTimeout):
	}
}

// check looks at every node before the first vote.
func (b *Backend) check(ctx context.Context) error {
	states, errs := b.states(ctx)
	reached, runs := 0, map[string]string{}
	for i, s := range states {
		addr := b.nodes[i].addr
		if errs[i] != nil {
			if errors.Is(errs[i], ErrNodeSetup) {
				return errs[i]
			}
			continue
		}
		reached++
		if other, twice := runs[s.runID]; twice {
			return setupError(addr, "it is the same server as %s; one server has one vote", other)
		}
		runs[s.runID] = addr
		if s.skew.Abs() > b.config.MaxSkew {
			return setupError(addr, "its clock is off by %v, more than MaxSkew (%v); set it right, or raise MaxSkew", s.skew, b.config.MaxSkew)
		}
		if max(s.max, s.floor) > fencing.MaxToken-fullMargin {
			return setupError(addr, "its largest token %d is near 2^53; no room is left for this namespace: start a new one", s.max)
		}
	}
	if reached < b.quorum {
		return troubleOf(states, errs)
	}
	return nil
}

// each runs f for every node at once and returns when all are done.
func (b *Backend) each(f func(i int, n *node)) {
	var wg sync.WaitGroup
	for i, n := range b.nodes {
		wg.Go(func() { f(i, n) })
	}
	wg.Wait()
}

// states asks every node for its state.
func (b *Backend) states(ctx context.Context) ([]state, []error) {
	ctx, cancel := context.WithTimeout(ctx, 4*b.config.NodeTimeout)
	defer cancel()
	states, errs := make([]state, len(b.nodes)), make([]error, len(b.nodes))
	b.each(func(i int, n *node) { states[i], errs[i] = n.ask(ctx, wallClock) })
	return states, errs
}

// refused is told when a node as a whole refuses to vote.
func (b *Backend) refused(why string) {
	if why == "empty" || strings.HasPrefix(why, "epoch ") {
		b.epochs.poke()
	}
}

// Open starts a session. Sessions of this mode live in the client only, so
// nothing is asked of the nodes.
func (b *Backend) Open(ctx context.Context, config lease.SessionConfig) (lease.Session, error) {
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	if config.TTL < lease.MinTTL || config.TTL > b.config.MaxTTL {
		return nil, fmt.Errorf("%w: the session's TTL (%v) must be from %v to the backend's MaxTTL (%v)",
			lease.ErrInvalid, config.TTL, lease.MinTTL, b.config.MaxTTL)
	}
	if config.Clock == nil {
		config.Clock = lease.SystemClock()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, fmt.Errorf("%w: the backend is closed", lease.ErrUnavailable)
	}
	s := b.sessions[config.ID]
	if s == nil {
		s = newSession(b, config)
		b.sessions[config.ID] = s
	}
	return s, nil
}

func (b *Backend) forget(s *session) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.sessions, s.config.ID)
}

// Close releases what is still held and ends all connections.
func (b *Backend) Close(ctx context.Context) error {
	b.mu.Lock()
	b.closed = true
	sessions := make([]*session, 0, len(b.sessions))
	for _, s := range b.sessions {
		sessions = append(sessions, s)
	}
	b.mu.Unlock()
	for _, s := range sessions {
		_ = s.Close(ctx) // what cannot be told expires
	}
	b.cancel()
	<-b.epochs.done
	for _, l := range b.lanes {
		l.close()
	}
	b.closeClients()
	b.wakers.Wait()
	return nil
}

func (b *Backend) closeClients() {
	b.cancel()
	for _, n := range b.nodes {
		_ = n.client.Close() // there is nobody left to whom an error would matter
	}
}
