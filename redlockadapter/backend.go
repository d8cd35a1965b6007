package redlockadapter

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/perlease"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/redlockadapter/quorum"
	"github.com/leased-project/leased/redlockadapter/recovery"
	"github.com/leased-project/leased/redlockadapter/redisconn"
	"github.com/leased-project/leased/redlockadapter/scripts"
)

// Backend is an engine.Backend over N Redis masters. All methods may be called
// concurrently. Close it after use.
type Backend struct {
	config      Config
	fingerprint string       // of the fleet
	namespace   string       // the prefix of all keys
	channel     string       // the prefix of wake-up channels
	process     string       // identifies this process on the nodes
	clock       engine.Clock // for timeouts and queues
	quorum      int

	nodes  []*redisconn.Conn
	order  []int // the nodes by their addresses: the same in every process
	keeper *keeper
	queues *queues
	grants grants

	unreleased atomic.Int64 // releases that are sent to a node again

	authority atomic.Pointer[authority] // of the newest topology that was used
	details   atomic.Pointer[detailsText]

	ctx        context.Context // ends with Close
	cancel     context.CancelFunc
	background sync.WaitGroup // the keeper, its sweeps and the subscriptions
}

var (
	_ engine.Backend  = (*Backend)(nil)
	_ perlease.Engine = (*Backend)(nil)
)

func newBackend(config Config) *Backend {
	prefix, id := scripts.KeyPrefix(config.Namespace), engine.NewSessionID()
	b := &Backend{config: config, fingerprint: config.fingerprint(), namespace: prefix, channel: prefix + "wake:",
		process: base64.RawURLEncoding.EncodeToString(id[:6]), // short, since every waiter stores it on the nodes
		clock:   engine.MonotonicClock(), quorum: quorum.Size(len(config.Nodes)),
		grants: grants{byName: map[string]*attempt{}}}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	b.keeper = newKeeper(b)
	b.queues = &queues{backend: b, locks: map[fencing.Resource]*queue{}}
	servers := redisconn.NewServers()
	for i, options := range config.Nodes {
		var hooks NodeHooks
		if config.Hooks.Node != nil {
			hooks = config.Hooks.Node(options.Addr)
		}
		b.nodes = append(b.nodes, redisconn.New(redisconn.Config{Options: options, Index: i, Prefix: prefix,
			Timeout: config.NodeTimeout,
			MaxAge:  config.checkAge(), MaxSkew: config.MaxSkew, Clock: config.Clock, Preload: scripts.Preload, Servers: servers,
			Failed: b.keeper.notify, Replied: hooks.Replied, Refused: hooks.Refused}))
		b.order = append(b.order, i)
	}
	slices.SortFunc(b.order, func(x, y int) int { return cmp.Compare(b.nodes[x].Addr(), b.nodes[y].Addr()) })
	return b
}

// New connects to the nodes and checks them. It fails with engine.ErrUnavailable if fewer
// than a quorum can be used, and with ErrNodeSetup if the reason is servers that must not
// be nodes. If a quorum remains, such servers are logged and do not vote.
//
// Without a service, New initialises the nodes of a new fleet: all of them must answer, none
// may have voted before, and each must keep its data on disk, because otherwise it could not
// tell whether it has voted. If the nodes have no state and one of these conditions is not met,
// New fails with ErrNoState; the error has the command for an operator. If a node answers
// only at first, it fails with engine.ErrUnavailable alone, and the next New may succeed.
func New(ctx context.Context, config Config) (*Backend, error) {
	b, err := connect(ctx, config)
	if err != nil {
		return nil, err
	}
	b.keeper.look(ctx)
	if err := b.keeper.initialiseNew(ctx); err != nil {
		_ = b.Close(ctx)
		return nil, err
	}
	b.background.Go(b.keeper.run)
	b.background.Go(b.keeper.sweep)
	return b, nil
}

// connect is New without the keeper.
func connect(ctx context.Context, config Config) (*Backend, error) {
	config = config.withDefaults()
	if err := config.addClients(); err != nil {
		return nil, err
	}
	if err := config.validate(); err != nil {
		return nil, err
	}
	b := newBackend(config)
	b.start()
	if err := b.checkNodes(ctx); err != nil {
		_ = b.Close(ctx)
		return nil, err
	}
	return b, nil
}

// start connects and subscribes to wake-ups. It returns when every node has answered,
// or after NodeTimeout.
func (b *Backend) start() {
	var connecting sync.WaitGroup
	connecting.Add(2 * len(b.nodes))
	for i, n := range b.nodes {
		go n.Run(connecting.Done)
		b.background.Go(func() { b.subscribe(i, n, connecting.Done) })
	}
	all := make(chan struct{})
	go func() { connecting.Wait(); close(all) }()
	select {
	case <-all:
	case <-time.After(b.config.NodeTimeout):
	}
}

// checkNodes returns an error unless a quorum of the nodes can be used.
func (b *Backend) checkNodes(ctx context.Context) error {
	errs := make([]error, len(b.nodes))
	var unusable []error // the setup must be changed first: a retry does not help
	for i, s := range b.NodeStatuses(ctx) {
		if live := s.Report.Live; live != nil && max(live.Max, live.Floor) > fencing.MaxToken-recovery.Jump {
			s.Err = redisconn.SetupError(s.Addr, "its largest token %d is near 2^53; start a new namespace", live.Max)
		}
		if errs[i] = s.Err; errors.Is(s.Err, ErrNodeSetup) {
			unusable = append(unusable, s.Err)
		}
	}
	switch {
	case quorum.Usable(errs):
		return nil
	case len(unusable) > len(b.nodes)-b.quorum:
		return errors.Join(unusable...)
	}
	return b.quorumError(errs)
}

// Open returns a session of this process. It sends nothing to the nodes, which store leases
// only.
func (b *Backend) Open(ctx context.Context, config engine.SessionConfig) (engine.Session, error) {
	if ctx.Err() != nil {
		return nil, engine.Cause(ctx)
	}
	if b.ctx.Err() != nil {
		return nil, fmt.Errorf("%w: %w", engine.ErrUnavailable, redisconn.ErrClosed)
	}
	return perlease.NewSession(b, config), nil
}

// Close closes the connections. Leases that were not released are held until their TTL passes, or
// another process renews them.
func (b *Backend) Close(context.Context) error {
	b.cancel()
	b.background.Wait()
	for _, n := range b.nodes {
		n.Close()
	}
	return nil
}
