package peers

import (
	"bufio"
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/leased-project/leased/internal/load"
)

// Names of the targets.
const (
	// Correctness takes locks in correctness mode.
	Correctness = "leased"
	// JSON takes locks in correctness mode with the JSON API.
	JSON = "leased-json"
	// Direct takes locks in efficiency mode, directly from five Redis nodes.
	Direct = "leased-efficiency"
	// Member takes locks in efficiency mode through a member, from five Redis nodes.
	Member = "leased-member"
)

// Prefixes of the locks in each mode.
const efficiencyPrefix, correctnessPrefix = "e/", "c/"

// leasedKinds returns the ways to use the service. Path is the program of the members; if
// it is empty, the program is built from this repository.
func leasedKinds(path string) []Kind {
	program := programAt(path)
	raft, redis := &leasedServers{program: program}, &leasedServers{program: program, nodes: redisNodes}
	return []Kind{
		leasedKind(Correctness, raft, "W1", "W2", "W3", "W4", "W6",
			"waiters", "batch", "sessions", "leases", "profile"),
		leasedKind(JSON, raft, "W7"),
		fewLeases(leasedKind(Direct, redis, "W1", "W2", "W3")),
		leasedKind(Member, redis, "W1", "W2"),
	}
}

// Efficiency returns efficiency mode with a number of Redis nodes, used directly.
func Efficiency(path string, nodes int) Kind {
	return leasedKind(Direct, &leasedServers{program: programAt(path), nodes: nodes})
}

func programAt(path string) *Program {
	if path != "" {
		return Given(path)
	}
	return &Program{Module: "github.com/leased-project/leased", Package: "github.com/leased-project/leased/cmd/leased"}
}

// fewLeases limits the leases that W3 holds in Redis, where each lease is renewed by itself.
func fewLeases(k Kind) Kind {
	k.MaxLeases = 10_000
	return k
}

func leasedKind(name string, servers *leasedServers, workloads ...string) Kind {
	return Kind{
		Name:            name,
		ClientPerWorker: name == JSON,
		Workloads:       workloads,
		Start: func(ctx context.Context, dir string) (Peer, error) {
			s, err := servers.use(func() (*service, error) { return startService(ctx, dir, servers.program, servers.nodes) })
			if err != nil {
				return nil, err
			}
			return &Leased{s, targetOf(name)(s.Endpoints), servers}, nil
		},
		Attach: attach(targetOf(name)),
	}
}

// leasedServers is a service that several targets use.
type leasedServers struct {
	program *Program
	nodes   int // of Redis
	shared[*service]
}

// Leased is a running service, used in one way. A member's number is its index in Pids.
type Leased struct {
	*service
	open    load.Target
	servers *leasedServers
}

var _ Killer = (*Leased)(nil)

// Open implements [Peer].
func (p *Leased) Open(ctx context.Context) (load.Client, error) { return p.open(ctx) }

// Stop implements [Peer].
func (p *Leased) Stop() { p.servers.leave((*service).stop) }

// Memory returns the bytes that each Redis node uses for its data, without the buffers of
// connections: for the few leases that are held in Redis, the memory of the processes is too coarse.
// It returns nothing if there are no Redis nodes.
func (p *Leased) Memory(ctx context.Context) (all []int64, err error) {
	for _, node := range p.redis {
		c := redis.NewClient(&redis.Options{Addr: node.Addr})
		text, err := c.Info(ctx, "memory").Result()
		_ = c.Close()
		if err != nil {
			return nil, fmt.Errorf("read the memory of Redis node %s: %w", node.Addr, err)
		}
		all = append(all, usedMemory(text))
	}
	return all, nil
}

// usedMemory reads the answer of a node.
func usedMemory(text string) (used int64) {
	signs := map[string]int64{"used_memory_dataset": 1, "used_memory_overhead": 1, "mem_clients_normal": -1,
		"mem_clients_slaves": -1}
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), ":")
		n, _ := strconv.ParseInt(value, 10, 64)
		used += signs[name] * n
	}
	return used
}
