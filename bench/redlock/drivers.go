package main

import (
	"context"
	"fmt"

	"github.com/go-redsync/redsync/v4"
	redsyncpool "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/redlockadapter"
)

// driver acquires and releases locks.
type driver interface {
	// pair acquires the lock, runs inside if it is not nil, and releases.
	pair(ctx context.Context, name string, inside func(token uint64)) error
	close()
}

// drivers lists all drivers; those that need no service come first.
var drivers = []string{"redsync", "bare", "direct", "member", "correctness"}

// dial returns a driver with new connections.
func (b *bench) dial(kind string) (driver, error) {
	switch kind {
	case "member":
		return b.service.dial(context.Background(), efficiencyPrefix)
	case "correctness":
		return b.service.dial(context.Background(), correctnessPrefix)
	}
	return newDriver(kind, b.addrs)
}

// pids returns the processes that serve a driver.
func (b *bench) pids(kind string) (pids []int) {
	for _, server := range b.servers {
		pids = append(pids, server.Pid())
	}
	if kind == "member" || kind == "correctness" {
		pids = append(pids, b.service.pids()...)
	}
	return pids
}

// newDriver returns a driver that needs Redis servers only.
func newDriver(kind string, addrs []string) (driver, error) {
	switch kind {
	case "redsync":
		return newRedsync(addrs), nil
	case "bare":
		return newBare(addrs)
	case "direct":
		return newLeased(addrs)
	}
	return nil, fmt.Errorf("no driver %q", kind)
}

// redsyncDriver is redsync with its default settings.
type redsyncDriver struct {
	rs      *redsync.Redsync
	clients []*redis.Client
}

func newRedsync(addrs []string) *redsyncDriver {
	d := &redsyncDriver{}
	var pools []redsyncpool.Pool
	for _, addr := range addrs {
		client := redis.NewClient(&redis.Options{Addr: addr, PoolSize: 256})
		d.clients = append(d.clients, client)
		pools = append(pools, goredis.NewPool(client))
	}
	d.rs = redsync.New(pools...)
	return d
}

func (d *redsyncDriver) pair(ctx context.Context, name string, inside func(uint64)) error {
	m := d.rs.NewMutex(name)
	if err := m.LockContext(ctx); err != nil {
		return err
	}
	if inside != nil {
		inside(0)
	}
	_, err := m.UnlockContext(ctx)
	return err
}

func (d *redsyncDriver) close() {
	for _, c := range d.clients {
		_ = c.Close()
	}
}

// leasedDriver is a lease.Client that connects to Redis directly, with its default settings.
type leasedDriver struct {
	backend *redlockadapter.Backend
	client  *lease.Client
}

func newLeased(addrs []string) (*leasedDriver, error) {
	backend, err := redlockadapter.New(context.Background(), config(addrs))
	if err != nil {
		return nil, err
	}
	client, err := lease.New(backend)
	return &leasedDriver{backend, client}, err
}

func (d *leasedDriver) pair(ctx context.Context, name string, inside func(uint64)) error {
	return pairOf(ctx, d.client, fencing.Resource(name), inside)
}

// pairOf acquires and releases a lock of a lease.Client.
func pairOf(ctx context.Context, client *lease.Client, name fencing.Resource, inside func(uint64)) error {
	l, err := client.Acquire(ctx, name)
	if err != nil {
		return err
	}
	if inside != nil {
		inside(uint64(l.Token()))
	}
	return l.Release(ctx)
}

func (d *leasedDriver) close() {
	_ = d.client.Close(context.Background())
	_ = d.backend.Close(context.Background())
}
