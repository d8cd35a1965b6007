package raftstore

import (
	"cmp"
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

// Default timings and limits of a node.
const (
	DefaultHeartbeatTimeout = 500 * time.Millisecond
	DefaultStoreDeadline    = 5 * time.Second
	DefaultMaxPending       = 16384
	DefaultSnapshotEntries  = 8192
	DefaultSnapshotInterval = time.Minute
)

// Config configures a Node. A zero field has its default.
type Config struct {
	// ID is the permanent name of the node.
	ID string
	// Dir is the data folder, with the log and the snapshots. No other node may use it.
	Dir string
	// Address is the listen address for peers. Without TLS it must be a loopback
	// address, because Raft connections have no authentication.
	Address string
	// Advertise is the address that peers use. Default: Address.
	Advertise string
	// TLS, if not nil, returns the certificate of this node and the authority of its
	// peers. It is called for every connection, so the certificates can change. It must
	// require and verify client certificates, and the certificate must name the node:
	// see transport.MemberURI.
	TLS func() *tls.Config
	// LogStore is the kind of the log on disk: logstore.WAL or logstore.Bolt. Open
	// returns logstore.ErrKind on a folder of the other kind. Default:
	// DefaultLogStore.
	LogStore logstore.Kind

	// HeartbeatTimeout is the time without a heartbeat after which a follower starts an
	// election. It must exceed the slowest write to disk, because heartbeats queue
	// behind writes. Default: DefaultHeartbeatTimeout.
	HeartbeatTimeout time.Duration
	// StoreDeadline is the maximum time of a write to disk. A slower write ends the
	// node. Default: DefaultStoreDeadline.
	StoreDeadline time.Duration
	// MaxPending is the maximum number of operations that wait for the log. Further
	// calls return ErrBusy. Default: DefaultMaxPending.
	MaxPending int
	// SnapshotEntries is the number of entries after which a snapshot replaces the log.
	// SnapshotInterval is the time between two checks.
	SnapshotEntries  uint64
	SnapshotInterval time.Duration

	// Clock measures the age of the leader's proof of leadership. Default:
	// engine.SystemClock.
	Clock engine.Clock
	// Logger receives log messages. Default: slog.Default.
	Logger *slog.Logger
	// Fatal is called when the node must stop: its disk failed or stalled, or its state
	// has diverged. Default: log the error and exit.
	Fatal func(error)

	// Transport and Storage replace network and disk in tests.
	Transport transport.Transport
	Storage   *Storage
	// Hooks are called while the node works, for metrics. Default: none.
	Hooks Hooks
	// Observer, if not nil, receives the changes of the machine.
	Observer Observer
	// Times, if not nil, knows when leases were granted and waiters were queued. Its
	// functions must not call the node.
	Times Times
}

// FolderVersion is the version of the format of a data folder: its files, and the keys that
// this package stores beside the log. See docs/adr/0030-frozen-formats.md.
const FolderVersion = 1

// Storage has the stores of a node: log, votes and snapshots.
type Storage struct {
	Log       raft.LogStore
	Stable    raft.StableStore
	Snapshots raft.SnapshotStore
	Close     func() error
}

// MemoryStorage returns a Storage in memory, for tests. A node that is opened again with
// it has its old state.
func MemoryStorage() *Storage {
	store := raft.NewInmemStore()
	return &Storage{Log: store, Stable: store, Snapshots: raft.NewInmemSnapshotStore(), Close: func() error { return nil }}
}

// filled returns c with its defaults.
func (c Config) filled() Config {
	c.LogStore = cmp.Or(c.LogStore, DefaultLogStore)
	c.HeartbeatTimeout = cmp.Or(c.HeartbeatTimeout, DefaultHeartbeatTimeout)
	c.StoreDeadline = cmp.Or(c.StoreDeadline, DefaultStoreDeadline)
	c.MaxPending = cmp.Or(c.MaxPending, DefaultMaxPending)
	c.SnapshotEntries = cmp.Or(c.SnapshotEntries, DefaultSnapshotEntries)
	c.SnapshotInterval = cmp.Or(c.SnapshotInterval, DefaultSnapshotInterval)
	c.Clock = cmp.Or(c.Clock, engine.SystemClock())
	c.Logger = cmp.Or(c.Logger, slog.Default()).With("id", c.ID)
	if c.Fatal == nil {
		logger := c.Logger
		c.Fatal = func(err error) {
			logger.Error("the node stops", "error", err)
			os.Exit(3)
		}
	}
	return c
}

// validate returns the first rule that c, with its defaults, breaks.
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
		return fmt.Errorf("%w: disk timeout (%v) must be longer than the heartbeat timeout (%v)", ErrConfig,
			c.StoreDeadline, c.HeartbeatTimeout)
	case c.MaxPending < 1:
		return fmt.Errorf("%w: max pending (%d) must be at least 1", ErrConfig, c.MaxPending)
	}
	if _, err := logstore.ParseKind(string(c.LogStore)); err != nil {
		return fmt.Errorf("%w: %w", ErrConfig, err)
	}
	return nil
}

// engine returns the configuration of hashicorp/raft.
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
	e.Logger = engineLogger(c.Logger, c.Clock)
	e.NoLegacyTelemetry = true
	return e
}

// DefaultLogStore is the log store of a Config that names none. The measurements
// behind the choice are in docs/adr/0010-log-store.md.
const DefaultLogStore = logstore.WAL
