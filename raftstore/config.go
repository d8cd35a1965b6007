package raftstore

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/hashicorp/raft"

	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/logstore"
	"github.com/leased-project/leased/raftstore/transport"
)

// The timings and limits of a node whose Config does not say otherwise.
const (
	DefaultHeartbeatTimeout = 500 * time.Millisecond
	DefaultStoreDeadline    = 5 * time.Second
	DefaultMaxPending       = 16384
	DefaultSnapshotEntries  = 8192
	DefaultSnapshotInterval = time.Minute
)

// Config is what a Node is opened with. A zero field takes its default.
type Config struct {
	// ID is the name of the node, for ever.
	ID string
	// Dir is the folder of the node's log and snapshots, of this node alone.
	Dir string
	// Address is where the node listens for its peers. Without TLS it must be
	// a loopback address: the engine's port knows no authentication.
	Address string
	// Advertise is the address that peers reach the node at. Default: Address.
	Advertise string
	// TLS, if not nil, must ask for and verify the certificates of clients.
	TLS *tls.Config
	// LogStore is the kind of the log on disk: logstore.WAL or logstore.Bolt. Open
	// returns logstore.ErrKind on a folder of the other kind. Default:
	// DefaultLogStore.
	LogStore logstore.Kind

	// HeartbeatTimeout is how long a follower waits for a sign of the leader
	// before it stands for election. It must be longer than the slowest write
	// to disk, since heartbeats queue behind writes. Default:
	// DefaultHeartbeatTimeout.
	HeartbeatTimeout time.Duration
	// StoreDeadline is how long a write to disk may take before the node ends.
	// Default: DefaultStoreDeadline.
	StoreDeadline time.Duration
	// MaxPending is how many operations may wait for the log before callers
	// are told ErrBusy. Default: DefaultMaxPending.
	MaxPending int
	// SnapshotEntries is after how many entries the log is replaced by a
	// snapshot, SnapshotInterval how often that is looked at.
	SnapshotEntries  uint64
	SnapshotInterval time.Duration

	// Clock is where a leader reads how fresh its proof of leadership is.
	// Default: lease.SystemClock.
	Clock engine.Clock
	// Logger is told what happens. Default: slog.Default.
	Logger *slog.Logger
	// Fatal is called when the node must not go on: its disk failed or
	// stalled, or it has diverged. Default: log the error and end the process.
	Fatal func(error)

	// Transport and Storage replace network and disk, in tests.
	Transport transport.Transport
	Storage   *Storage
	// Observer, if not nil, sees what the machine does, in tests.
	Observer Observer
}

// Storage is where a node keeps its log, its votes and its snapshots.
type Storage struct {
	Log       raft.LogStore
	Stable    raft.StableStore
	Snapshots raft.SnapshotStore
	Close     func() error
}

// MemoryStorage keeps everything in memory, for tests. A node that is opened
// again with it finds what it had.
func MemoryStorage() *Storage {
	store := raft.NewInmemStore()
	return &Storage{Log: store, Stable: store, Snapshots: raft.NewInmemSnapshotStore(), Close: func() error { return nil }}
}

// filled is c with its defaults.
func (c Config) filled() Config {
	setDefault(&c.LogStore, DefaultLogStore)
	setDefault(&c.HeartbeatTimeout, DefaultHeartbeatTimeout)
	setDefault(&c.StoreDeadline, DefaultStoreDeadline)
	setDefault(&c.MaxPending, DefaultMaxPending)
	setDefault(&c.SnapshotEntries, DefaultSnapshotEntries)
	setDefault(&c.SnapshotInterval, DefaultSnapshotInterval)
	if c.Clock == nil {
		c.Clock = engine.SystemClock()
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	c.Logger = c.Logger.With("node", c.ID)
	if c.Fatal == nil {
		logger := c.Logger
		c.Fatal = func(err error) {
			logger.Error("the node ends", "error", err)
			os.Exit(3)
		}
	}
	return c
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// validate reports the first rule that c, with its defaults, breaks.
func (c Config) validate() error {
	switch {
	case c.ID == "":
		return fmt.Errorf("%w: id is empty", ErrConfig)
	case c.Storage == nil && c.Dir == "":
		return fmt.Errorf("%w: dir is empty", ErrConfig)
	case c.Transport == nil && c.Address == "":
		return fmt.Errorf("%w: address is empty", ErrConfig)
	case c.HeartbeatTimeout < 5*time.Millisecond:
		return fmt.Errorf("%w: heartbeat timeout (%v) must be at least 5ms", ErrConfig, c.HeartbeatTimeout)
	case c.StoreDeadline <= c.HeartbeatTimeout:
		return fmt.Errorf("%w: store deadline (%v) must be longer than the heartbeat timeout (%v)", ErrConfig, c.StoreDeadline, c.HeartbeatTimeout)
	case c.MaxPending < 1:
		return fmt.Errorf("%w: max pending (%d) must be at least 1", ErrConfig, c.MaxPending)
	}
	if _, err := logstore.ParseKind(string(c.LogStore)); err != nil {
		return fmt.Errorf("%w: %w", ErrConfig, err)
	}
	return nil
}

// engine is the configuration of the Raft engine.
func (c Config) engine(notify chan<- bool) *raft.Config {
	e := raft.DefaultConfig()
	e.LocalID = raft.ServerID(c.ID)
	e.HeartbeatTimeout = c.HeartbeatTimeout
	e.ElectionTimeout = c.HeartbeatTimeout
	e.LeaderLeaseTimeout = c.HeartbeatTimeout
	e.SnapshotThreshold = c.SnapshotEntries
	e.SnapshotInterval = c.SnapshotInterval
	e.TrailingLogs = c.SnapshotEntries
	e.NotifyCh = notify
	e.Logger = engineLogger(c.Logger)
	e.NoLegacyTelemetry = true
	return e
}

// DefaultLogStore is the log store of a Config that names none. The measurements
// behind the choice are in docs/adr/0010-log-store.md.
const DefaultLogStore = logstore.WAL
