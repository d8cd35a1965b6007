// Package peers has the lock services that are compared. Each has a package, which
// starts its real servers on loopback and uses the client library that its users use.
//
// The nouns, in reading order: [Kind], a row of the table of services; [Peer], running
// servers; [Killer], [Profiler] and [MemoryReporter], peers that can do more.
package peers

import (
	"context"
	"time"

	"github.com/leased-project/leased/internal/load"
)

// Kind is a lock service that can be measured.
type Kind struct {
	// Name is the name on the command line and in the results.
	Name string
	// Start starts the servers in a new folder below dir and waits until they grant locks.
	Start func(ctx context.Context, dir string) (Peer, error)
	// Attach returns a target for servers that another process has started. Address is
	// that process's [Peer].Address.
	Attach func(address string) (load.Target, error)
	// ClientPerWorker says that users of the service have a client, with its session or
	// connection, for each worker. Otherwise the workers of a process share one.
	ClientPerWorker bool
	// WarmUp is how long the servers need load after their start before they are as fast as
	// they get, as servers in Java do.
	WarmUp time.Duration
	// MaxLeases is the number of leases that W3 holds if that is less than its default.
	MaxLeases int
	// Workloads lists what is measured, such as "W1". Nil stands for W1 and W2.
	Workloads []string
}

// Peer is a lock service with running servers.
type Peer interface {
	load.Target
	// Address says where the servers are, for Kind.Attach.
	Address() string
	// Pids returns the process ids of the running servers.
	Pids() []int
	// Version returns the version of the servers, and of the client library if that
	// matters.
	Version() string
	// Stop stops the servers and removes their data.
	Stop()
}

// Killer is a peer with a leader that can be killed.
type Killer interface {
	Peer
	// KillLeader ends the leader with SIGKILL.
	KillLeader(ctx context.Context) error
	// Restore starts killed servers again and waits until they take part.
	Restore(ctx context.Context) error
}

// Profiler is a peer whose servers serve CPU profiles over HTTP, as net/http/pprof does.
type Profiler interface {
	Peer
	// Profiles returns the addresses for the profiles of the leader and of a follower.
	Profiles(ctx context.Context) (leader, follower string, err error)
}

// MemoryReporter is a peer that knows the memory of its data better than the kernel does.
type MemoryReporter interface {
	Peer
	// Memory returns the bytes that each server uses.
	Memory(ctx context.Context) ([]int64, error)
}

// TryOnce takes and releases a lock with a new client.
func TryOnce(ctx context.Context, open func(context.Context) (load.Client, error)) error {
	client, err := open(ctx)
	if err != nil {
		return err
	}
	defer client.Close(ctx)
	held, err := client.Acquire(ctx, "ready")
	if err != nil {
		return err
	}
	return held.Release(ctx)
}
