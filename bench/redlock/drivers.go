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

// driver takes a lock and gives it back.
type driver interface {
	// pair acquires the lock, runs inside if it is not nil, and releases.
	pair(ctx context.Context, name string, inside func(token uint64)) error
	close()
}

func newDriver(kind string, addrs []string) (driver, error) {
	switch kind {
	case "redsync":
		return newRedsync(addrs), nil
	case "bare":
		return newBare(addrs)
	case "leased":
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

// leasedDriver is a lease.Client with its default settings.
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
	l, err := d.client.Acquire(ctx, fencing.Resource(name))
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
