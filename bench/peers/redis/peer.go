// Package redis runs Redis servers and takes locks with the client libraries redsync and
// redislock. Both give a lease without a fencing token, and poll while a lock is held.
//
// The servers have no persistence: a server that restarts has lost its locks.
//
// The nouns, in reading order: fleet, the running servers; redsyncTarget and
// redislockTarget, the libraries; bareTarget, a baseline.
package redis

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/leased-project/leased/bench/peers"
	"github.com/leased-project/leased/internal/load"
	"github.com/leased-project/leased/internal/testserver"
)

// poolSize is the number of connections that a process may open to a server. It is the
// largest number of workers, so that no worker waits for a connection.
const poolSize = 256

// Kinds returns the rows of the table.
func Kinds() []peers.Kind {
	return []peers.Kind{
		kind("redsync-1", 1, newRedsync),
		kind("redsync-5", 5, newRedsync),
		kind("redislock-1", 1, newRedislock),
		baseline(kind("redis-bare-5", 5, newBare)),
	}
}

// baseline returns a kind that cannot wait for a lock.
func baseline(k peers.Kind) peers.Kind {
	k.Workloads = []string{"W1"}
	return k
}

// Redsync returns redsync with a number of servers.
func Redsync(servers int) peers.Kind {
	return kind(fmt.Sprintf("redsync-%d", servers), servers, newRedsync)
}

// kind returns the row of a library that uses a number of servers.
func kind(name string, servers int, newTarget func(name string, addresses []string) load.Target) peers.Kind {
	return peers.Kind{
		Name: name,
		Start: func(context.Context, string) (peers.Peer, error) {
			f := &fleet{}
			for range servers {
				s, err := testserver.StartRedis()
				if err != nil {
					f.Stop()
					return nil, err
				}
				f.servers, f.addresses = append(f.servers, s), append(f.addresses, s.Addr)
			}
			f.Target = newTarget(name, f.addresses)
			return f, nil
		},
		Attach: func(address string) (load.Target, error) {
			var addresses []string
			err := json.Unmarshal([]byte(address), &addresses)
			return newTarget(name, addresses), err
		},
	}
}

// fleet is the running servers.
type fleet struct {
	load.Target
	servers   []*testserver.RedisServer
	addresses []string
}

var _ peers.Peer = (*fleet)(nil)

// Address implements [peers.Peer].
func (f *fleet) Address() string {
	text, _ := json.Marshal(f.addresses) // strings can always be encoded
	return string(text)
}

// Pids implements [peers.Peer].
func (f *fleet) Pids() (pids []int) {
	for _, s := range f.servers {
		pids = append(pids, s.Pid())
	}
	return pids
}

// Version implements [peers.Peer].
func (f *fleet) Version() string {
	library := peers.Library("redsync", "github.com/go-redsync/redsync/v4")
	switch f.Target.(type) {
	case *bareTarget:
		return "Redis " + serverVersion()
	case *redislockTarget:
		library = peers.Library("redislock", "github.com/bsm/redislock")
	}
	return "Redis " + serverVersion() + ", " + library + ", " + peers.Library("go-redis", "github.com/redis/go-redis/v9")
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

// Stop implements [peers.Peer].
func (f *fleet) Stop() {
	for _, s := range f.servers {
		s.Close()
	}
}

// dial returns a connection pool for each server.
func dial(addresses []string) (clients []*redis.Client) {
	for _, address := range addresses {
		clients = append(clients, redis.NewClient(&redis.Options{Addr: address, PoolSize: poolSize}))
	}
	return clients
}
