package remote

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/status"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/internal/wire"
	"github.com/leased-project/leased/lease/engine"
)

const (
	// The pause before the next member is asked grows from minTopologyPause to
	// maxTopologyPause.
	minTopologyPause = 50 * time.Millisecond
	maxTopologyPause = 2 * time.Second
	// The pause between two refreshes grows from minRefreshPause to maxRefreshPause while the topology stays the same,
	// since a migration can wait for hours until its locks are released.
	minRefreshPause = time.Second
	maxRefreshPause = 30 * time.Second
)

// topologyWatch follows the topology that any member publishes. It starts on first
// use.
type topologyWatch struct {
	settings *settings
	ctx      context.Context // ends with close
	cancel   context.CancelFunc
	start    sync.Once
	running  sync.WaitGroup

	mu       sync.Mutex
	known    bool
	current  engine.Topology
	changed  chan struct{}      // closed and replaced after each change of known, current or rejected
	rejected map[string]error   // members that did not know the caller since the last answer
	failed   error              // why the last member that was asked sent no topology
	restart  context.CancelFunc // ends the stream, so that another member is asked

	refreshed    engine.Instant // the last refresh
	refreshPause time.Duration  // until the next one; 0 after a change of current
	outdated     bool           // a call was refused because the topology is outdated
}

func (w *topologyWatch) close() {
	w.cancel()
	w.start.Do(func() {}) // it must not start after close
	w.running.Wait()
}

// Topology returns the newest known topology. It may be empty before AwaitTopology
// returns.
func (b *Backend) Topology() engine.Topology {
	topology, _, _ := b.topology.read()
	return topology
}

// NextTopology returns the first known topology whose version is above after.
func (b *Backend) NextTopology(ctx context.Context, after uint64) (engine.Topology, error) {
	for {
		topology, known, changed := b.topology.read()
		if known && topology.Version > after {
			return topology, nil
		}
		select {
		case <-changed:
		case <-b.topology.ctx.Done():
			return engine.Topology{}, errClosed
		case <-ctx.Done():
			return engine.Topology{}, engine.Cause(ctx)
		}
	}
}

// AwaitTopology waits for the first topology. If no member answers within the
// timeout of the Backend, the error matches engine.ErrUnavailable; if all members
// reject the caller, it matches engine.ErrInvalid.
func (b *Backend) AwaitTopology(ctx context.Context) error {
	var late <-chan time.Time
	for {
		_, known, changed := b.topology.read()
		if known {
			return nil
		}
		if err := b.topology.rejection(); err != nil {
			// It matches engine.ErrInvalid, since a retry does not help, without its text: the request is right, and the
			// credentials are not.
			return engine.Special("read the policies: "+err.Error(), errors.Join(engine.ErrInvalid, err))
		}
		if late == nil {
			timer := time.NewTimer(b.settings.Timeout)
			defer timer.Stop()
			late = timer.C
		}
		select {
		case <-changed:
		case <-late:
			return fmt.Errorf("%w: none of %v sent its policies within %v%s", wire.ErrUnreachable,
				b.settings.endpoints, b.settings.Timeout, b.topology.lastFailure())
		case <-b.topology.ctx.Done():
			return errClosed
		case <-ctx.Done():
			return fmt.Errorf("no member of %v has sent its policies: %w%s", b.settings.endpoints, engine.Cause(ctx),
				b.topology.lastFailure())
		}
	}
}

// lastFailure returns why the last member that was asked sent no topology, for an error.
func (w *topologyWatch) lastFailure() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failed == nil {
		return ""
	}
	return "; " + w.failed.Error()
}

// cause returns the text of the error of a call. gRPC puts the cause of a failed connection at its end, in quotes.
func cause(err error) string {
	text := status.Convert(err).Message()
	if _, quoted, ok := strings.Cut(text, `desc = "`); ok {
		text = strings.TrimSuffix(quoted, `"`)
	}
	return strings.TrimPrefix(text, "transport: ")
}

// RefreshTopology follows another member from now on. Call it when an answer shows
// that the known topology is stale. It does nothing if another member was followed a moment ago.
func (b *Backend) RefreshTopology() {
	w := b.topology
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.settings.clock.Now()
	if w.refreshPause > 0 && now.Since(w.refreshed) < w.refreshPause {
		return
	}
	w.refreshed = now
	w.refreshPause = min(max(2*w.refreshPause, minRefreshPause), maxRefreshPause)
	w.restart()
}

// TopologyIsOutdated follows another member after a second, unless the topology has changed by then.
func (b *Backend) TopologyIsOutdated() {
	w := b.topology
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.outdated {
		return
	}
	w.outdated = true
	version := w.current.Version
	time.AfterFunc(minRefreshPause, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.outdated = false
		if w.current.Version == version {
			w.restart()
		}
	})
}

// read returns the newest topology, and a channel that is closed when it changes.
func (w *topologyWatch) read() (topology engine.Topology, known bool, changed <-chan struct{}) {
	w.start.Do(func() { w.running.Go(w.run) })
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.current, w.known, w.changed
}

// rejection returns an error if all members rejected the caller.
func (w *topologyWatch) rejection() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.rejected) < len(w.settings.endpoints) {
		return nil
	}
	return w.rejected[w.settings.endpoints[0]]
}

// run follows one member after the other until close.
func (w *topologyWatch) run() {
	pause := minTopologyPause
	next := rand.N(len(w.settings.endpoints))
	for w.ctx.Err() == nil {
		var address string
		address, next = w.settings.Next(w.settings.clock.Now(), next)
		received, err := w.follow(address)
		if received {
			pause = minTopologyPause
		}
		w.mu.Lock()
		w.failed = fmt.Errorf("%s: %s", address, cause(err))
		if w.settings.requested.Load() {
			w.failed = fmt.Errorf("%w; the service asks for a client certificate, and the TLS configuration has none: "+
				"set Certificates in the tls.Config of client.WithTLS", w.failed)
		}
		if errors.Is(err, wire.ErrUnauthenticated) {
			w.rejected[address] = err
			w.notify()
		}
		w.mu.Unlock()
		if engine.Sleep(w.ctx, pause/2+rand.N(pause/2)) != nil {
			return
		}
		pause = min(2*pause, maxTopologyPause)
	}
}

// follow receives topologies from one member until the stream ends, and reports
// whether it received any.
func (w *topologyWatch) follow(address string) (received bool, err error) {
	conn, err := w.settings.newConn(address)
	if err != nil {
		return false, err
	}
	defer conn.Close()
	ctx, cancel := context.WithCancel(w.ctx)
	defer cancel()
	w.mu.Lock()
	w.restart = cancel
	w.mu.Unlock()
	began := w.settings.clock.Now()
	first := time.AfterFunc(w.settings.ConnectTime(began, address), func() {
		w.settings.Connected(w.settings.clock.Now(), began, address, ErrSilent, false)
		cancel()
	})
	defer first.Stop()
	stream, err := pb.NewPolicyServiceClient(conn).WatchTopology(ctx, &pb.WatchTopologyRequest{})
	if err != nil {
		if first.Stop() {
			w.settings.Connected(w.settings.clock.Now(), began, address, err, ctx.Err() != nil)
		}
		return false, wire.FromStatus(err)
	}
	w.running.Go(func() {
		if errors.Is(WatchSilence(ctx, conn), ErrSilent) {
			w.settings.FellSilent(w.settings.clock.Now(), address)
			cancel()
		}
	})
	for {
		message, err := stream.Recv()
		if err != nil {
			return received, wire.FromStatus(err)
		}
		if first.Stop() {
			w.settings.Connected(w.settings.clock.Now(), began, address, nil, false)
			w.settings.Answered(address)
		}
		topology, err := wire.ToTopology(message)
		if err != nil {
			return received, err
		}
		received = true
		w.update(topology)
	}
}

// update stores a topology unless a newer one is known: a member may be behind. The user
// is not a part of the version.
func (w *topologyWatch) update(topology engine.Topology) {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.rejected)
	if w.known && topology.Version <= w.current.Version {
		user := topology.User
		if topology = w.current; user == topology.User {
			return
		}
		topology.User = user
	} else {
		w.refreshPause = 0
	}
	w.known, w.current = true, topology
	w.notify()
}

// notify wakes the callers that wait for a change. The caller holds mu.
func (w *topologyWatch) notify() {
	close(w.changed)
	w.changed = make(chan struct{})
}
