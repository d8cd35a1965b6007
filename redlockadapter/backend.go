package redlockadapter

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/redlockadapter/quorum"
	"github.com/leased-project/leased/redlockadapter/recovery"
)

// Backend is a engine.Backend over N Redis masters. All methods may be called
// concurrently. Close it when done.
type Backend struct {
	config      Config
	fingerprint string       // of the fleet
	channel     string       // begins the names of wake-up channels
	process     string       // identifies this process on the nodes
	clock       engine.Clock // for what has no session's clock
	quorum      int
	tries       atomic.Uint64

	nodes   []*node
	lives   *lives
	keeper  *keeper
	queues  *queues
	granted grants
	timers  sync.Pool // of this Backend: a timer must not leave its synctest bubble

	ctx     context.Context // ends with Close
	cancel  context.CancelFunc
	working sync.WaitGroup

	mu       sync.Mutex
	closed   bool
	sessions map[engine.SessionID]*session
}

var _ engine.Backend = (*Backend)(nil)

// wallClock is the time that people and Redis servers know. Only the skew of
// servers and the order of waiters depend on it.
func wallClock() time.Time { return engine.MonotonicClock().Now().Time() }

// newProcess returns a random name, short since it is part of every record: 48
// bits, always of the same length.
func newProcess() string {
	id := engine.NewSessionID()
	return base64.RawURLEncoding.EncodeToString(id[:6])
}

func newBackend(config Config) *Backend {
	b := &Backend{config: config, fingerprint: config.fleet().Fingerprint(), channel: keyPrefix(config.Namespace) + "wake:",
		process: newProcess(), clock: engine.MonotonicClock(), quorum: quorum.Size(len(config.Nodes)),
		lives: &lives{owner: map[string]string{}}, granted: grants{byName: map[string]*attempt{}},
		sessions: map[engine.SessionID]*session{}}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	b.keeper = newKeeper(b)
	b.queues = newQueues(b)
	for i, options := range config.Nodes {
		b.nodes = append(b.nodes, newNode(b, i, options))
	}
	return b
}

// New connects to the nodes and checks that they can be relied on. An unreachable
// node is no error while a majority is reachable; a server that is not fit to be a
// node is, see ErrNodeSetup. Nodes without state are no error either: acquiring
// is, until they are initialised.
func New(ctx context.Context, config Config) (*Backend, error) {
	b, err := connect(ctx, config)
	if err != nil {
		return nil, err
	}
	b.keeper.look(ctx)
	go b.keeper.run(b.ctx)
	return b, nil
}

// connect is New without the keeper.
func connect(ctx context.Context, config Config) (*Backend, error) {
	config = config.filled()
	if err := config.validate(); err != nil {
		return nil, err
	}
	b := newBackend(config)
	b.start()
	if err := b.examine(ctx); err != nil {
		close(b.keeper.done) // it never ran
		_ = b.Close(ctx)
		return nil, err
	}
	return b, nil
}

// start makes the connections and subscribes to wake-ups, and gives the nodes a
// moment to answer.
func (b *Backend) start() {
	var asked sync.WaitGroup
	asked.Add(2 * len(b.nodes))
	for _, n := range b.nodes {
		go n.run(asked.Done)
		b.working.Go(func() { b.listen(n, asked.Done) })
	}
	all := make(chan struct{})
	go func() { asked.Wait(); close(all) }()
	select {
	case <-all:
	case <-time.After(b.config.NodeTimeout):
	}
}

// examine looks at every node before the first attempt.
func (b *Backend) examine(ctx context.Context) error {
	reached := 0
	errs := make([]error, len(b.nodes))
	for i, s := range b.NodeStatuses(ctx) {
		if errs[i] = s.Err; s.Err != nil {
			if errors.Is(s.Err, ErrNodeSetup) {
				return s.Err
			}
			continue
		}
		reached++
		if s.Skew.Abs() > b.config.MaxSkew {
			return setupError(s.Addr, "its clock is off by %v, more than MaxSkew (%v); set it right, or raise MaxSkew", s.Skew, b.config.MaxSkew)
		}
		if live := s.Report.Live; live != nil && max(live.Max, live.Floor) > fencing.MaxToken-recovery.Jump {
			return setupError(s.Addr, "its largest token %d is near 2^53; start a new namespace", live.Max)
		}
	}
	if reached < b.quorum {
		return b.explain(errs)
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

// poke has the keeper look at the nodes.
func (b *Backend) poke() { b.keeper.poke() }

func (b *Backend) forget(s *session) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.sessions, s.config.ID)
}

// Close releases what the sessions of this Backend hold and ends all connections.
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
	<-b.keeper.done
	for _, n := range b.nodes {
		n.close()
	}
	b.working.Wait()
	return nil
}

// Init makes the nodes of a new standalone fleet voters, with tokens above floor.
// It is also how an operator decides about a fleet of which fewer than a quorum
// can report how far tokens had come: floor must then be above every token that was
// ever granted. A majority of the nodes must be reachable. Nodes that have state in
// this fleet stay as they are; a node that votes in another one is an error.
func Init(ctx context.Context, config Config, floor fencing.Token) error {
	config.Topology = nil
	b, err := connect(ctx, config)
	if err != nil {
		return err
	}
	close(b.keeper.done) // it never ran
	defer b.Close(ctx)
	statuses := b.NodeStatuses(ctx)
	for _, s := range statuses {
		if live := s.Report.Live; live != nil && live.Fleet != b.fingerprint {
			return fmt.Errorf("%w: %s: %w", engine.ErrUnavailable, s.Addr, errFleet)
		}
	}
	if err := b.refuseService(reports(statuses)); err != nil {
		return err
	}
	known, _ := recovery.StandaloneFloor(reports(statuses))
	if known > recovery.Jump { // some node knows of tokens
		floor = max(floor, known)
	}
	initialised, errs := 0, make([]error, len(b.nodes))
	for i, s := range statuses {
		errs[i] = s.Err
		if s.Err == nil && s.Report.Live == nil {
			errs[i] = b.initNode(ctx, i, floor)
		}
		if errs[i] == nil {
			initialised++
		}
	}
	if initialised < b.quorum {
		return fmt.Errorf("%w: %d of %d Redis nodes were initialised, %d are needed: %w",
			engine.ErrUnavailable, initialised, len(b.nodes), b.quorum, errors.Join(errs...))
	}
	return nil
}

func (b *Backend) initNode(ctx context.Context, node int, floor fencing.Token) error {
	join := engine.NewSessionID().String()
	if err := b.Join(ctx, node, join, standaloneVersion); err != nil {
		return err
	}
	_, err := b.Initialise(ctx, node, Range{Join: join, Version: standaloneVersion, Floor: floor, Ceiling: fencing.MaxToken})
	return err
}
