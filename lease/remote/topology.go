package remote

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/lease/remote/wire"
)

// A member that does not answer for this long is given up as the source of the
// topology, and the pauses before the next one is asked.
const (
	silentTime     = 10 * time.Second
	minTopologyGap = 50 * time.Millisecond
	maxTopologyGap = 2 * time.Second
)

// topologyWatch follows the topology at any member. It starts when the topology is
// first asked for.
type topologyWatch struct {
	settings *settings
	ctx      context.Context // ends with close
	cancel   context.CancelFunc
	start    sync.Once
	running  sync.WaitGroup

	mu      sync.Mutex
	known   bool
	current engine.Topology
	changed chan struct{}      // closed and replaced when something below or above changes
	refused map[string]error   // members that do not know the caller, since the last answer
	again   context.CancelFunc // ends the stream, so that another member is asked
}

func newTopologyWatch(s *settings) *topologyWatch {
	w := &topologyWatch{settings: s, changed: make(chan struct{}), refused: map[string]error{}, again: func() {}}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	return w
}

func (w *topologyWatch) close() {
	w.cancel()
	w.start.Do(func() {}) // it must not start any more
	w.running.Wait()
}

// Topology returns the newest topology that is known. Before AwaitTopology has
// returned it may be empty.
func (b *Backend) Topology() engine.Topology {
	topology, _, _ := b.topology.look()
	return topology
}

// NextTopology returns the first known topology whose version is above after.
func (b *Backend) NextTopology(ctx context.Context, after uint64) (engine.Topology, error) {
	for {
		topology, known, changed := b.topology.look()
		if known && topology.Version > after {
			return topology, nil
		}
		select {
		case <-changed:
		case <-b.topology.ctx.Done():
			return engine.Topology{}, errClosed
		case <-ctx.Done():
			return engine.Topology{}, context.Cause(ctx)
		}
	}
}

// AwaitTopology returns when the first topology is known. If no member answers
// within the patience of the Backend the error matches engine.ErrUnavailable; if
// none of them knows the caller it matches engine.ErrInvalid.
func (b *Backend) AwaitTopology(ctx context.Context) error {
	var late <-chan time.Time
	for {
		_, known, changed := b.topology.look()
		if known {
			return nil
		}
		if err := b.topology.refusal(); err != nil {
			return fmt.Errorf("%w: read the policies: %w", engine.ErrInvalid, err)
		}
		if late == nil {
			timer := time.NewTimer(b.patience)
			defer timer.Stop()
			late = timer.C
		}
		select {
		case <-changed:
		case <-late:
			return fmt.Errorf("%w: no member has told its policies within %v; asked %v", engine.ErrUnavailable, b.patience, b.endpoints)
		case <-b.topology.ctx.Done():
			return errClosed
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// RefreshTopology asks another member. Call it when an answer shows that the
// topology is stale and no newer one has come by itself.
func (b *Backend) RefreshTopology() {
	b.topology.mu.Lock()
	defer b.topology.mu.Unlock()
	b.topology.again()
}

func (w *topologyWatch) look() (topology engine.Topology, known bool, changed <-chan struct{}) {
	w.start.Do(func() { w.running.Go(w.run) })
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.current, w.known, w.changed
}

// refusal is why nobody tells the topology to this caller, nil if somebody may.
func (w *topologyWatch) refusal() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.refused) < len(w.settings.endpoints) {
		return nil
	}
	return w.refused[w.settings.endpoints[0]]
}

// run asks one member after the other, for as long as each of them answers.
func (w *topologyWatch) run() {
	gap := minTopologyGap
	for next := rand.N(len(w.settings.endpoints)); w.ctx.Err() == nil; next++ {
		address := w.settings.endpoints[next%len(w.settings.endpoints)]
		heard, err := w.follow(address)
		if heard {
			gap = minTopologyGap
		}
		if errors.Is(err, wire.ErrUnauthenticated) {
			w.mu.Lock()
			w.refused[address] = err
			w.announce()
			w.mu.Unlock()
		}
		if sleep(w.ctx, gap/2+rand.N(gap/2)) != nil {
			return
		}
		gap = min(2*gap, maxTopologyGap)
	}
}

// follow takes the topology from one member until the stream ends, and reports
// whether it has told any.
func (w *topologyWatch) follow(address string) (heard bool, err error) {
	conn, err := w.settings.newConn(address, grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: silentTime, Timeout: silentTime / 2}))
	if err != nil {
		return false, err
	}
	defer conn.Close()
	ctx, cancel := context.WithCancel(w.ctx)
	defer cancel()
	w.mu.Lock()
	w.again = cancel
	w.mu.Unlock()
	first := time.AfterFunc(connectTime, cancel)
	defer first.Stop()
	stream, err := pb.NewPolicyServiceClient(conn).WatchTopology(ctx, &pb.WatchTopologyRequest{})
	if err != nil {
		return false, wire.FromStatus(err)
	}
	for {
		message, err := stream.Recv()
		if err != nil {
			return heard, wire.FromStatus(err)
		}
		first.Stop()
		topology, err := wire.ToTopology(message)
		if err != nil {
			return heard, err
		}
		heard = true
		w.take(topology)
	}
}

// take adopts a topology unless a newer one is known: a member may be behind.
func (w *topologyWatch) take(topology engine.Topology) {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.refused)
	if w.known && topology.Version <= w.current.Version {
		return
	}
	w.known, w.current = true, topology
	w.announce()
}

// announce wakes those who wait for a change. The caller holds mu.
func (w *topologyWatch) announce() {
	close(w.changed)
	w.changed = make(chan struct{})
}
