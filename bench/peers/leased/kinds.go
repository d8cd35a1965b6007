package leased

import (
	"context"
	"encoding/json"
	"os/exec"
	"strings"
	"sync"

	"github.com/leased-project/leased/bench/peers"
	"github.com/leased-project/leased/internal/load"
)

// Names of the targets.
const (
	// Correctness takes locks in correctness mode.
	Correctness = "leased"
	// Direct takes locks in efficiency mode, directly from five Redis nodes.
	Direct = "leased-efficiency"
	// Member takes locks in efficiency mode through a member, from five Redis nodes.
	Member = "leased-member"
)

// Prefixes of the locks in each mode.
const efficiencyPrefix, correctnessPrefix = "e/", "c/"

// Kinds returns the ways to use the service. Program is that of the members; if it is
// empty, it is built from this repository.
func Kinds(program string) []peers.Kind {
	both := &sharedService{program: program}
	kind := func(name string, start func(ctx context.Context, dir string) (*service, func(), error)) peers.Kind {
		return peers.Kind{
			Name: name,
			Start: func(ctx context.Context, dir string) (peers.Peer, error) {
				s, stop, err := start(ctx, dir)
				if err != nil {
					return nil, err
				}
				return &peer{target: targetOf(name, s.endpoints), service: s, stop: stop}, nil
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
	correctness := kind(Correctness, func(ctx context.Context, dir string) (*service, func(), error) {
		s, err := start(ctx, dir, program, 0)
		if err != nil {
			return nil, nil, err
		}
		return s, s.stop, nil
	})
	kinds := []peers.Kind{correctness, kind(Direct, both.start), kind(Member, both.start)}
	for i := range kinds[1:] {
		kinds[1+i].Exclude = []string{"W4"}
	}
	return kinds
}

// sharedService is a service with Redis nodes that two targets use.
type sharedService struct {
	program string

	mu      sync.Mutex
	users   int
	service *service
}

func (s *sharedService) start(ctx context.Context, dir string) (*service, func(), error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users == 0 {
		started, err := start(ctx, dir, s.program, redisNodes)
		if err != nil {
			return nil, nil, err
		}
		s.service = started
	}
	s.users++
	return s.service, s.stop, nil
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
	*target
	service *service
	stop    func()
}

var _ peers.Killer = (*peer)(nil)

// Address implements [peers.Peer].
func (p *peer) Address() string {
	text, _ := json.Marshal(p.endpoints) // strings can always be encoded
	return string(text)
}

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
	leader.Kill()
	return nil
}

// Restore implements [peers.Killer].
func (p *peer) Restore(ctx context.Context) error { return p.service.restore(ctx) }

// Stop implements [peers.Peer].
func (p *peer) Stop() { p.stop() }
