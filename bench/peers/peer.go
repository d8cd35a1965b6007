// Package peers has the lock services that are compared. It starts their real servers on loopback and uses the client
// library that their users use.
//
// The nouns, in reading order: [Kind], a row of the table of services; [Cluster], running servers; [Kinds], the table;
// service, how the servers of a replicated service run. Each service has files with its name.
package peers

import (
	"context"
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
	Start starter
	// Open returns a target for the endpoints of a Cluster, also for one that another process has started.
	Open func(endpoints []string) load.Target
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

// starter is the type of [Kind].Start.
type starter = func(ctx context.Context, dir string) (*Cluster, error)

// Kinds returns the table of the services, in the order of measurement within a round. Program is that of leased, or
// empty to build it.
func Kinds(program string) []Kind {
	ours := leasedKinds(program)
	// Three servers each. A worker has a session of etcd on one client, a session of ZooKeeper for the lock recipe of
	// go-zookeeper/zk, or a session of Consul. Through the JSON gateway of etcd, as a program without a client library
	// uses it, a client has a connection to one of the servers, and a lease.
	replicated := []Kind{
		{Name: "etcd", Start: etcdService.start, Open: openEtcd, ClientPerWorker: true,
			Workloads: []string{"W1", "W2", "W3", "W4", "W6"}},
		{Name: "etcd-json", Start: etcdService.start, Open: openEtcdJSON, ClientPerWorker: true,
			Workloads: []string{"W7"}},
		{Name: "zookeeper", Start: zooKeeperService.start, Open: openZooKeeper, ClientPerWorker: true,
			WarmUp: zooKeeperWarmUp, Workloads: []string{"W1", "W2", "W4"}},
		{Name: "consul", Start: consulService.start, Open: openConsul, ClientPerWorker: true},
	}
	return slices.Concat(ours, replicated, redisKinds(), postgresKinds(), guardedKinds(ours[0]))
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

// sharing makes several kinds use the same servers.
func sharing(start starter) starter {
	var all shared[*Cluster]
	return func(ctx context.Context, dir string) (*Cluster, error) {
		c, err := all.use(func() (*Cluster, error) { return start(ctx, dir) })
		if err != nil {
			return nil, err
		}
		user := *c
		user.stops = []func(){func() { all.leave((*Cluster).Stop) }}
		return &user, nil
	}
}
