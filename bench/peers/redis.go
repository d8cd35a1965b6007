package peers

import (
	"context"
	"fmt"
	"os/exec"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/leased-project/leased/internal/load"
	"github.com/leased-project/leased/internal/testserver"
)

// poolSize is the number of connections that a process may open to a server. It is the
// largest number of workers, so that no worker waits for a connection.
const poolSize = 256

// redisKinds returns the client libraries redsync and redislock, and a baseline. Both libraries give a lease without
// a fencing token, and poll while a lock is held. The servers have no persistence: a server that restarts has lost
// its locks.
func redisKinds() []Kind {
	baseline := redisKind("redis-bare-5", 5, "", newBare)
	baseline.Workloads = []string{"W1"} // it cannot wait for a lock
	redislock := redisKind("redislock-1", 1, Library("redislock", "github.com/bsm/redislock"), newRedislock)
	return []Kind{Redsync(1), Redsync(5), redislock, baseline}
}

// Redsync returns redsync with a number of servers.
func Redsync(servers int) Kind {
	library := Library("redsync", "github.com/go-redsync/redsync/v4")
	return redisKind(fmt.Sprintf("redsync-%d", servers), servers, library, newRedsync)
}

// redisKind returns the row of a library that uses a number of servers.
func redisKind(name string, servers int, library string, open func(addresses []string) load.Target) Kind {
	return Kind{
		Name: name,
		Start: func(context.Context, string) (Peer, error) {
			f := &redisFleet{library: library}
			for range servers {
				s, err := testserver.StartRedis()
				if err != nil {
					f.Stop()
					return nil, err
				}
				f.redis = append(f.redis, s)
				f.Servers, f.Endpoints = append(f.Servers, &s.Process), append(f.Endpoints, s.Addr)
			}
			f.open = open(f.Endpoints)
			return f, nil
		},
		Attach: attach(open),
	}
}

// redisFleet is the running servers.
type redisFleet struct {
	Cluster
	library string // empty for the baseline
	redis   []*testserver.RedisServer
}

var _ Peer = (*redisFleet)(nil)

// Version implements [Peer].
func (f *redisFleet) Version() string {
	version := "Redis " + serverVersion()
	if f.library == "" {
		return version
	}
	return version + ", " + f.library + ", " + Library("go-redis", "github.com/redis/go-redis/v9")
}

// serverVersion returns the version that the program prints, such as "7.0.15".
func serverVersion() string {
	text, _ := exec.Command("redis-server", "--version").Output()
	for field := range strings.FieldsSeq(string(text)) {
		if version, ok := strings.CutPrefix(field, "v="); ok {
			return version
		}
	}
	return ""
}

// Stop implements [Peer].
func (f *redisFleet) Stop() {
	for _, s := range f.redis {
		s.Close()
	}
}

// dialRedis returns a connection pool for each server.
func dialRedis(addresses []string) (clients []*redis.Client) {
	for _, address := range addresses {
		clients = append(clients, redis.NewClient(&redis.Options{Addr: address, PoolSize: poolSize}))
	}
	return clients
}
