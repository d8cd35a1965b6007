package leased

import (
	"context"
	"encoding/json"
	"os/exec"
	"strings"
	"sync"

	"github.com/leased-project/leased/bench/peers"
	"github.com/leased-project/leased/bench/peers/process"
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

// Kinds returns the ways to use the service. Path is the program of the members; if
// it is empty, the program is built from this repository.
func Kinds(path string) []peers.Kind {
	program := programAt(path)
	raft, redis := &sharedService{program: program}, &sharedService{program: program, nodes: redisNodes}
	return []peers.Kind{
		kind(Correctness, raft, "W1", "W2", "W3", "W4", "W6"), // the first, see Raft
		kind(JSON, raft, "W7"),
		fewLeases(kind(Direct, redis, "W1", "W2", "W3")),
		kind(Member, redis, "W1", "W2"),
	}
}

// Raft returns correctness mode.
func Raft(path string) peers.Kind { return Kinds(path)[0] }

// Efficiency returns efficiency mode with a number of Redis nodes, used directly.
func Efficiency(path string, nodes int) peers.Kind {
	return kind(Direct, &sharedService{program: programAt(path), nodes: nodes})
}

func programAt(path string) *process.Program {
	if path != "" {
		return process.Given(path)
	}
	return &process.Program{Module: "github.com/leased-project/leased", Package: "./cmd/leased"}
}

// fewLeases limits the leases that W3 holds in Redis, where each lease is renewed by itself.
func fewLeases(k peers.Kind) peers.Kind {
	k.MaxLeases = 10_000
	return k
}

func kind(name string, shared *sharedService, workloads ...string) peers.Kind {
	return peers.Kind{
		Name:            name,
		ClientPerWorker: name == JSON,
		Workloads:       workloads,
		Start: func(ctx context.Context, dir string) (peers.Peer, error) {
			s, err := shared.start(ctx, dir)
			if err != nil {
				return nil, err
			}
			p := &peer{Target: targetOf(name, s.Endpoints), service: s, stop: shared.stop}
			if shared.nodes > 0 {
				return &redisPeer{p}, nil
			}
			return p, nil
		},
		Attach: func(address string) (load.Target, error) {
			var endpoints []string
			if err := json.Unmarshal([]byte(address), &endpoints); err != nil {
				return nil, err
			}
			return targetOf(name, endpoints), nil
		},
	}
}

// sharedService is a service that several targets use.
type sharedService struct {
	program *process.Program
	nodes   int

	mu      sync.Mutex
	users   int
	service *service
}

func (s *sharedService) start(ctx context.Context, dir string) (*service, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users == 0 {
		started, err := start(ctx, dir, s.program, s.nodes)
		if err != nil {
			return nil, err
		}
		s.service = started
	}
	s.users++
	return s.service, nil
}

func (s *sharedService) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users--; s.users == 0 {
		s.service.stop()
	}
}

// peer is a running service, used in one way.
type peer struct {
	load.Target
	service *service
	stop    func()
}

// redisPeer is a running service with Redis nodes.
type redisPeer struct{ *peer }

var (
	_ peers.Killer         = (*peer)(nil)
	_ peers.Profiler       = (*peer)(nil)
	_ peers.MemoryReporter = (*redisPeer)(nil)
)

// Address implements [peers.Peer].
func (p *peer) Address() string { return p.service.Address() }

// Pids implements [peers.Peer].
func (p *peer) Pids() []int { return p.service.pids() }

// Version implements [peers.Peer].
func (p *peer) Version() string {
	text, err := exec.Command(p.service.program, "version").Output()
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(text), "\n")
	return strings.TrimPrefix(line, "leased ")
}

// KillLeader implements [peers.Killer].
func (p *peer) KillLeader(ctx context.Context) error {
	leader, err := p.service.leader(ctx)
	if err != nil {
		return err
	}
	p.service.Servers[leader].Kill()
	return nil
}

// Profiles implements [peers.Profiler].
func (p *peer) Profiles(ctx context.Context) (leader, follower string, err error) {
	i, err := p.service.leader(ctx)
	if err != nil {
		return "", "", err
	}
	return p.service.profiles[i], p.service.profiles[(i+1)%members], nil
}

// Restore implements [peers.Killer].
func (p *peer) Restore(ctx context.Context) error { return p.service.restore(ctx) }

// Stop implements [peers.Peer].
func (p *peer) Stop() { p.stop() }
