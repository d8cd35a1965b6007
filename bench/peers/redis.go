package peers

import (
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/leased-project/leased/bench/meter"
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
	redislock := redisKind("redislock-1", 1, library("redislock", "github.com/bsm/redislock"), newRedislock)
	return []Kind{Redsync(1), Redsync(5), redislock, baseline}
}

// Redsync returns redsync with a number of servers.
func Redsync(servers int) Kind {
	library := library("redsync", "github.com/go-redsync/redsync/v4")
	return redisKind(fmt.Sprintf("redsync-%d", servers), servers, library, newRedsync)
}

// redisKind returns the row of a library that uses a number of servers.
func redisKind(name string, servers int, client string, open func(addresses []string) load.Target) Kind {
	return Kind{Name: name, Open: open, Start: func(context.Context, string) (*Cluster, error) {
		c, err := startRedis(servers)
		if err == nil && client != "" {
			c.Version += ", " + client + ", " + library("go-redis", "github.com/redis/go-redis/v9")
		}
		return c, err
	}}
}

// startRedis starts a number of servers.
func startRedis(servers int) (*Cluster, error) {
	c := &Cluster{Version: "Redis " + redisVersion()}
	for range servers {
		s, err := testserver.StartRedis()
		if err != nil {
			c.Stop()
			return nil, err
		}
		c.add(&s.Process, s.Close)
		c.Endpoints = append(c.Endpoints, s.Addr)
	}
	return c, nil
}

// redisVersion returns the version that the program prints, such as "7.0.15".
func redisVersion() string {
	text, _ := exec.Command("redis-server", "--version").Output()
	for field := range strings.FieldsSeq(string(text)) {
		if version, ok := strings.CutPrefix(field, "v="); ok {
			return version
		}
	}
	return ""
}

// Memory returns the bytes of memory of each server. Of members with Redis nodes, it returns those that each node uses
// for its data, without the buffers of connections: for the few leases that are held in Redis, the memory of the
// processes is too coarse.
func (c *Cluster) Memory(ctx context.Context) (all []int64, err error) {
	if len(c.Redis) == 0 {
		for _, pid := range c.Pids() {
			all = append(all, meter.Memory(pid))
		}
		return all, nil
	}
	for i, node := range dialRedis(c.Redis) {
		text, err := node.Info(ctx, "memory").Result()
		_ = node.Close()
		if err != nil {
			return nil, fmt.Errorf("read the memory of Redis node %s: %w", c.Redis[i], err)
		}
		all = append(all, usedMemory(text))
	}
	return all, nil
}

// usedMemory reads the answer of a node.
func usedMemory(text string) (used int64) {
	signs := map[string]int64{"used_memory_dataset": 1, "used_memory_overhead": 1, "mem_clients_normal": -1,
		"mem_clients_slaves": -1}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		n, _ := strconv.ParseInt(value, 10, 64)
		used += signs[name] * n
	}
	return used
}

// dialRedis returns a connection pool for each server.
func dialRedis(addresses []string) (clients []*redis.Client) {
	for _, address := range addresses {
		clients = append(clients, redis.NewClient(&redis.Options{Addr: address, PoolSize: poolSize}))
	}
	return clients
}
