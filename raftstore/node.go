package raftstore

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/leased-project/leased/raftstore/hub"
	"github.com/leased-project/leased/raftstore/logstore"
	"github.com/leased-project/leased/raftstore/machine"
	"github.com/leased-project/leased/raftstore/replica"
	"github.com/leased-project/leased/raftstore/transport"
)

const (
	// cachedEntries is the number of entries in memory, for followers that are nearly up
	// to date.
	cachedEntries = 128
	// keptSnapshots is the number of snapshots on disk.
	keptSnapshots = 2
	// drainTimeout bounds the wait for the entry in flight.
	drainTimeout = time.Second
	// shutdownTimeout bounds the wait for the goroutines of the Raft library.
	shutdownTimeout = 10 * time.Second
)

// Node is one member of a cluster: the Raft library, the machine and, while it leads, the
// lessor. All methods may be called concurrently. Close it when done.
type Node struct {
	config    Config
	logger    *slog.Logger
	transport transport.Transport
	admission *admission
	catchUp   *catchUp
	storage   *Storage
	snapshots raft.SnapshotStore // of storage, guarded
	log       *logstore.WriteBehind
	followed  *followerLog // on top of log
	raft      *raft.Raft
	fsm       *replica.FSM
	hub       *hub.Hub
	committer *committer
	applying  arrivals // of the entry that is being applied
	progress  transport.Progress
	memory    transport.Memory
	topology  topologyWatch
	changes   changeLog

	memberAPIs atomic.Pointer[map[string]string] // see MemberAPI; nil before the first address

	left  chan string // a leader whose last connection to this node has ended; has room for one
	early atomic.Pointer[earlyElection]

	notify      chan bool                  // from the Raft library: whether this node leads
	leadMu      longMutex                  // held during a change of leadership
	leading     atomic.Pointer[leadership] // nil while this node does not serve
	leaderships atomic.Uint64              // number so far
	limits      atomic.Pointer[machine.Limits]

	memberMu longMutex     // held while members change
	started  chan struct{} // closed when raft is set
	stopped  chan struct{}
	stopOnce sync.Once
	failure  atomic.Pointer[error]
	work     sync.WaitGroup

	formerRefusal atomic.Bool // a peer that refuses the former data folder was logged
}

// Open starts a node on its data folder. A node that does not belong to a cluster waits for
// Bootstrap or Join.
func Open(config Config) (*Node, error) {
	config = config.filled()
	if err := config.validate(); err != nil {
		return nil, err
	}
	n := newNode(config)
	if err := n.openStorage(); err != nil {
		return nil, err
	}
	if err := n.openTransport(); err != nil {
		n.storage.Close()
		return nil, err
	}
	if err := n.startEngine(); err != nil {
		n.stopOnce.Do(func() { close(n.stopped) })
		n.transport.Close()
		n.storage.Close()
		return nil, fmt.Errorf("start node: %w", err)
	}
	close(n.started)
	n.work.Go(n.admission.run)
	n.work.Go(n.watchLeadership)
	n.work.Go(n.watchContact)
	n.work.Go(n.watchConnections)
	go n.committer.run()
	go n.committer.end()
	return n, nil
}

func newNode(config Config) *Node {
	n := &Node{config: config, logger: config.Logger, hub: hub.New(), notify: make(chan bool, 16),
		left:   make(chan string, 1),
		leadMu: make(longMutex, 1), memberMu: make(longMutex, 1), started: make(chan struct{}), stopped: make(chan struct{})}
	n.fsm = replica.New(config.ID, n.die, follower{n})
	n.memory.Voter, n.memory.Refused, n.memory.Told = n.hasVote, n.refuse, n.wentBack
	n.committer = newCommitter(n)
	return n
}

func (n *Node) startEngine() (err error) {
	n.catchUp = &catchUp{node: n}
	if err := n.catchUp.load(); err != nil {
		return err
	}
	if n.admission, err = newAdmission(n); err != nil {
		return err
	}
	guarded, err := n.guarded()
	if err != nil {
		return err
	}
	if err := completeInstall(guarded); err != nil {
		return err
	}
	engine := n.config.engine(n.notify)
	if n.catchUp.pending() {
		engine.HeartbeatTimeout, engine.ElectionTimeout = noElectionTimeout, noElectionTimeout
	}
	n.raft, err = raft.NewRaft(engine, configuredFSM{n.fsm, &n.memory}, guarded.Log, guarded.Stable, guarded.Snapshots,
		transport.Sequential{Transport: n.admission, Progress: &n.progress, Memory: &n.memory, Durable: n.log.Durable})
	if err != nil {
		return err
	}
	n.watchLeaders()
	return nil
}

// completeInstall deletes the entries of a log that ends before the newest snapshot: the node stopped after it had
// saved the snapshot. The log of raft-wal accepts no entry behind a gap.
func completeInstall(s *Storage) error {
	saved, err := s.Snapshots.List()
	if err != nil || len(saved) == 0 {
		return err
	}
	first, err := s.Log.FirstIndex()
	if err != nil {
		return err
	}
	last, err := s.Log.LastIndex()
	if err != nil || last == 0 || last >= saved[0].Index {
		return err
	}
	_, whole, err := s.Snapshots.Open(saved[0].ID) // it takes the place of the entries
	if err != nil {
		return fmt.Errorf("open the newest snapshot: %w", err)
	}
	return errors.Join(whole.Close(), s.Log.DeleteRange(first, last))
}

func (n *Node) openStorage() (err error) {
	if n.storage = n.config.Storage; n.storage == nil {
		n.storage, err = openDisk(n.config)
	}
	return err
}

// openDisk opens log and snapshots in the data folder.
func openDisk(c Config) (*Storage, error) {
	logger := engineLogger(c.Logger, c.Clock)
	store, err := logstore.Open(c.LogStore, c.Dir, logger)
	if err != nil {
		return nil, err
	}
	snapshots, err := raft.NewFileSnapshotStoreWithLogger(c.Dir, keptSnapshots, logger)
	if err == nil {
		err = removePartialSnapshots(c.Dir)
	}
	if err != nil {
		store.Close()
		return nil, fmt.Errorf("open snapshots: %w", err)
	}
	return &Storage{Log: store.Log, Stable: store.Stable, Snapshots: snapshots, Close: store.Close}, nil
}

// removePartialSnapshots removes snapshots that were not completed, because the process ended or the disk was full. The
// Raft library ignores them and keeps them.
func removePartialSnapshots(dir string) error {
	dir = filepath.Join(dir, "snapshots")
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".tmp") {
			err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
		}
	}
	return err
}

func (n *Node) openTransport() (err error) {
	if n.transport = n.config.Transport; n.transport == nil {
		n.transport, err = transport.Listen(transport.Config{ID: n.ID(), Address: n.config.Address,
			Advertise: n.config.Advertise, TLS: n.config.TLS,
			Accept: n.acceptPeer, Admit: n.admitRequest, Left: n.peerLeft, Clock: n.config.Clock, Logger: engineLogger(n.logger,
				n.config.Clock)})
	}
	return err
}

// guarded wraps the storage for the Raft library: any failure ends the node, and a vote is
// written atomically.
func (n *Node) guarded() (*Storage, error) {
	guard := logstore.NewGuard(n.config.StoreDeadline, n.die)
	guard.Stored, guard.Snapshot = n.config.Hooks.Stored, n.config.Hooks.Snapshot
	n.log = logstore.NewWriteBehind(guard.Log(n.storage.Log), n.writesEarly, n.stopped)
	log, err := raft.NewLogCache(cachedEntries, n.log)
	if err != nil {
		return nil, err
	}
	go n.log.Run()
	n.snapshots = guard.Snapshots(n.storage.Snapshots)
	votes := logstore.NewVotes(guard.Stable(n.storage.Stable))
	votes.Refuse = n.catchUp.refuseVote
	n.followed = &followerLog{LogCache: log, node: n}
	return &Storage{Log: n.followed, Stable: votes, Snapshots: n.snapshots}, nil
}

// writesEarly reports whether this node may replicate entries before they are on its disk: a
// leader whose commits need the acknowledgement of another voter, which is withheld until then.
// A change of the members may remove that voter, so it is written first.
func (n *Node) writesEarly(logs []*raft.Log) bool {
	select {
	case <-n.started:
	default:
		return false
	}
	if n.raft.State() != raft.Leader || slices.ContainsFunc(logs, func(l *raft.Log) bool {
		return l.Type != raft.LogCommand
	}) {
		return false
	}
	voters := 0
	for _, m := range n.Members() {
		if m.Voter {
			voters++
		}
	}
	return voters > 1
}

// die ends a node that must not continue.
func (n *Node) die(err error) {
	if !n.failure.CompareAndSwap(nil, &err) {
		return
	}
	n.stopOnce.Do(func() { close(n.stopped) })
	n.config.Fatal(err)
	go func() { // in a test the process continues, but the Raft library and its heartbeats must not
		<-n.started
		n.raft.Shutdown()
		_ = n.transport.Close()
	}()
}

// Failure returns why the node ended itself, nil if it did not. It is useful only if
// Config.Fatal returns.
func (n *Node) Failure() error {
	if err := n.failure.Load(); err != nil {
		return *err
	}
	return nil
}

// ID returns the name of the node.
func (n *Node) ID() string { return n.config.ID }

// Address returns the address for peers.
func (n *Node) Address() string { return string(n.transport.LocalAddr()) }

// Leads reports whether the node serves as leader. It is a hint: the leadership may be lost
// before the next call.
func (n *Node) Leads() bool { return n.leading.Load() != nil }

// Leader returns the leader that this node knows, empty if it knows none.
func (n *Node) Leader() (id, address string) {
	a, i := n.raft.LeaderWithID()
	return string(i), string(a)
}

// Close stops the node. Committed entries stay. Operations in progress end with ErrStopped.
// Use Transfer first if the node leads others.
func (n *Node) Close() error {
	n.committer.drain(drainTimeout)
	n.stopOnce.Do(func() { close(n.stopped) })
	done := make(chan error, 1)
	go func() {
		err := n.raft.Shutdown().Error()
		n.log.Wait()
		done <- err
	}()
	var errs []error
	select {
	case err := <-done:
		errs = append(errs, err)
	case <-time.After(shutdownTimeout):
		errs = append(errs, fmt.Errorf("close node: the Raft library has not stopped within %v", shutdownTimeout))
	}
	n.work.Wait()
	errs = append(errs, n.storage.Close())
	return errors.Join(errs...)
}
