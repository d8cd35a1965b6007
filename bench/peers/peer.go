// Package peers has the lock services that are compared. It starts their real servers on loopback and uses the client
// library that their users use.
//
// The nouns, in reading order: [Kind], a row of the table of services; [Peer], running servers; [Killer], one
// with a leader; [Leased], our own, which can be observed; [Cluster], how servers run; [Kinds], the table. Each service
// has files with its name.
package peers

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
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
	// Open is a load.Target.
	Open(ctx context.Context) (load.Client, error)
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

// Kinds returns the table of the services, in the order of measurement within a round. Program is that of leased, or
// empty to build it.
func Kinds(program string) []Kind {
	ours := leasedKinds(program)
	replicated := []Kind{etcdKind(), etcdJSONKind(), zooKeeperKind(), consulKind()}
	return slices.Concat(ours, replicated, redisKinds(), postgresKinds(), guardedKinds(ours[0]))
}

// nodes is the number of servers of a replicated service.
const nodes = 3

// attach returns a [Kind].Attach for addresses that [Cluster].Address has encoded.
func attach(newTarget func(addresses []string) load.Target) func(string) (load.Target, error) {
	return func(address string) (load.Target, error) {
		var addresses []string
		if err := json.Unmarshal([]byte(address), &addresses); err != nil {
			return nil, err
		}
		return newTarget(addresses), nil
	}
}

// tryOnce takes and releases a lock with a new client.
func tryOnce(ctx context.Context, open load.Target) error {
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

// shared is what several users share: the first starts it, and the last stops it.
type shared[T any] struct {
	mu    sync.Mutex
	users int
	value T
}

func (s *shared[T]) use(start func() (T, error)) (value T, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users == 0 {
		if s.value, err = start(); err != nil {
			return value, err
		}
	}
	s.users++
	return s.value, nil
}

func (s *shared[T]) leave(stop func(T)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users--; s.users == 0 {
		stop(s.value)
	}
}
