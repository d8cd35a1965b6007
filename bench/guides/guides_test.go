// Package guides_test contains the code of docs/MIGRATING.md: each Go block there is part of
// a function here, word for word. The module of the benchmarks has the libraries of the
// other lock services.
package guides_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/go-zookeeper/zk"
	consul "github.com/hashicorp/consul/api"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	etcd "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/storagegate/sqlgate/pgxgate"
)

func TestEveryGuideIsCode(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "MIGRATING.md"))
	require.NoError(t, err)
	source, err := os.ReadFile("guides_test.go")
	require.NoError(t, err)
	// integrations/kubelock checks the guide for client-go.
	others, rest, _ := strings.Cut(string(text), "\n## client-go leader election\n")
	_, rest, _ = strings.Cut(rest, "\n## ")
	blocks := strings.Split(others+rest, "```go\n")[1:]
	require.Len(t, blocks, len(guides))
	for _, block := range blocks {
		block, _, _ = strings.Cut(block, "```")
		inside := ""
		for line := range strings.Lines(block) {
			if strings.TrimSpace(line) != "" {
				inside += "\t"
			}
			inside += line
		}
		require.Contains(t, string(source), inside, "no function of this package contains this block of the guide")
	}
}

// guides are the functions with the blocks of the page.
var guides = []any{
	after, both, beforeRedsync, beforeRedislock, beforeEtcd, beforeConsul, beforeZooKeeper, beforeAdvisory,
}

type servers struct {
	locks  *lease.Client
	gate   *pgxgate.Gate
	pool   *pgxpool.Pool
	redis  *redis.Client
	etcd   *etcd.Client
	consul *consul.Client
	zk     *zk.Conn
}

const update = `UPDATE accounts SET balance = balance - 10 WHERE id = 7`

func after(ctx context.Context, s servers) error {
	locks, gate := s.locks, s.gate
	return locks.Do(ctx, "account/7", func(ctx context.Context, l *lease.Lease) error {
		account := lease.Gate(l, gate)
		if err := account.Enter(ctx); err != nil { // before the first read
			return err
		}
		return account.Do(ctx, func(tx pgxgate.Tx) error {
			_, err := tx.Exec(ctx, update)
			return err
		})
	})
}

func both(ctx context.Context, s servers, withOldLock func(func() error) error, write func(pgxgate.Tx) error) error {
	locks, gate := s.locks, s.gate
	return locks.Do(ctx, "account/7", func(ctx context.Context, l *lease.Lease) error {
		return withOldLock(func() error { // inside: unmigrated programs take only this one
			return lease.Gate(l, gate).Do(ctx, write)
		})
	})
}

func beforeRedsync(ctx context.Context, s servers) error {
	client, pool := s.redis, s.pool
	mutex := redsync.New(goredis.NewPool(client)).NewMutex("account/7", redsync.WithExpiry(30*time.Second))
	if err := mutex.LockContext(ctx); err != nil {
		return err
	}
	defer mutex.UnlockContext(ctx)
	_, err := pool.Exec(ctx, update)
	return err
}

func beforeRedislock(ctx context.Context, s servers) error {
	client, pool := s.redis, s.pool
	lock, err := redislock.New(client).Obtain(ctx, "account/7", 30*time.Second, nil)
	if err != nil {
		return err
	}
	defer lock.Release(ctx)
	_, err = pool.Exec(ctx, update)
	return err
}

func beforeEtcd(ctx context.Context, s servers) error {
	client, pool := s.etcd, s.pool
	session, err := concurrency.NewSession(client, concurrency.WithTTL(30))
	if err != nil {
		return err
	}
	defer session.Close()
	mutex := concurrency.NewMutex(session, "/account/7")
	if err := mutex.Lock(ctx); err != nil {
		return err
	}
	defer mutex.Unlock(ctx)
	_, err = pool.Exec(ctx, update)
	return err
}

func beforeConsul(ctx context.Context, s servers) error {
	client, pool := s.consul, s.pool
	lock, err := client.LockKey("account/7")
	if err != nil {
		return err
	}
	if _, err := lock.Lock(ctx.Done()); err != nil {
		return err
	}
	defer lock.Unlock()
	_, err = pool.Exec(ctx, update)
	return err
}

func beforeZooKeeper(ctx context.Context, s servers) error {
	conn, pool := s.zk, s.pool
	lock := zk.NewLock(conn, "/account/7", zk.WorldACL(zk.PermAll))
	if err := lock.Lock(); err != nil {
		return err
	}
	defer lock.Unlock()
	_, err := pool.Exec(ctx, update)
	return err
}

func beforeAdvisory(ctx context.Context, s servers) error {
	pool := s.pool
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	if _, err := conn.Exec(ctx, `SELECT pg_advisory_lock(7)`); err != nil {
		return err
	}
	defer conn.Exec(ctx, `SELECT pg_advisory_unlock(7)`)
	_, err = conn.Exec(ctx, update)
	return err
}
