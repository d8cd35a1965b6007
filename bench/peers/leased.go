package peers

import (
	"bufio"
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	leasedv1 "github.com/leased-project/leased/api/leased/v1"
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
			p := &leasedPeer{Target: targetOf(name, s.Endpoints), service: s, servers: servers}
			if servers.nodes > 0 {
				return &redisPeer{p}, nil
			}
			return p, nil
		},
		Attach: attach(func(endpoints []string) load.Target { return targetOf(name, endpoints) }),
	}
}

// leasedServers is a service that several targets use.
type leasedServers struct {
	program *Program
	nodes   int // of Redis
	shared[*service]
}

// leasedPeer is a running service, used in one way.
type leasedPeer struct {
	load.Target
	service *service
	servers *leasedServers
}

// redisPeer is a running service with Redis nodes.
type redisPeer struct{ *leasedPeer }

var (
	_ Killer         = (*leasedPeer)(nil)
	_ Members        = (*leasedPeer)(nil)
	_ MemoryReporter = (*redisPeer)(nil)
)

// Address implements [Peer].
func (p *leasedPeer) Address() string { return p.service.Address() }

// Pids implements [Peer].
func (p *leasedPeer) Pids() []int { return p.service.pids() }

// Version implements [Peer].
func (p *leasedPeer) Version() string { return firstLine("leased ", p.service.program, "version") }

// KillLeader implements [Killer].
func (p *leasedPeer) KillLeader(ctx context.Context) error {
	leader, err := p.service.leader(ctx)
	if err != nil {
		return err
	}
	p.service.Servers[leader].Kill()
	return nil
}

// Leader implements [Members].
func (p *leasedPeer) Leader(ctx context.Context) (int, error) { return p.service.leader(ctx) }

// API implements [Members].
func (p *leasedPeer) API(member int) string { return p.service.Endpoints[member] }

// Profile implements [Members].
func (p *leasedPeer) Profile(member int) string { return p.service.profiles[member] }

// Snapshot implements [Members].
func (p *leasedPeer) Snapshot(ctx context.Context, member int) error {
	return callMember(p.API(member), func(service leasedv1.ClusterServiceClient) error {
		stream, err := service.SaveSnapshot(ctx, &leasedv1.SaveSnapshotRequest{})
		if err == nil {
			_, err = stream.Recv()
		}
		return err
	})
}

// Restore implements [Killer].
func (p *leasedPeer) Restore(ctx context.Context) error { return p.service.restore(ctx) }

// Stop implements [Peer].
func (p *leasedPeer) Stop() { p.servers.leave((*service).stop) }

// Memory returns the bytes that each Redis node uses for its data, without the buffers of
// connections. It implements [MemoryReporter]: for the few leases that are held in
// Redis, the memory of the processes is too coarse.
func (p *redisPeer) Memory(ctx context.Context) (all []int64, err error) {
	for _, node := range p.service.redis {
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
