// Package leased runs a service of three members, built from this repository, and takes
// locks from it with a [lease.Client].
//
// The nouns, in reading order: Service, the running members with their Redis nodes;
// Kinds, the ways to use it; target, a client of the service.
package leased

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	leasedv1 "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/bench/peers/process"
	"github.com/leased-project/leased/internal/testserver"
)

const (
	members    = 3
	redisNodes = 5
	policies   = "policies:\n  - {prefix: 'e/', mode: efficiency}\n  - {prefix: 'c/', mode: correctness}\n"
)

// service is three members on this machine.
type service struct {
	process.Cluster
	program  string
	profiles []string // addresses of the profiles of the members
	redis    []*testserver.RedisServer
}

// start starts members with a number of Redis nodes.
func start(ctx context.Context, dir string, program *process.Program, nodes int) (*service, error) {
	s := &service{}
	err := s.Launch(ctx, dir, "leased", func(ctx context.Context) (err error) {
		if s.program, err = program.Path(ctx, dir); err != nil {
			return err
		}
		for range nodes {
			node, err := testserver.StartRedis()
			if err != nil {
				return err
			}
			s.redis = append(s.redis, node)
		}
		return s.startMembers()
	}, s.ready)
	if err != nil {
		s.stop()
	}
	return s, err
}

func (s *service) startMembers() error {
	file := filepath.Join(s.Dir, "leased.yaml")
	text := policies
	if len(s.redis) == 0 {
		text = ""
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return err
	}
	var nodes []string
	for _, node := range s.redis {
		nodes = append(nodes, node.Addr)
	}
	addresses, err := process.FreeAddresses(3 * members)
	if err != nil {
		return err
	}
	s.Endpoints, s.profiles = addresses[:members], addresses[2*members:]
	for i := range members {
		id := string(rune('a' + i))
		args := []string{"serve", "--config=" + file, "--id=" + id, "--data=" + filepath.Join(s.Dir, id), "--listen=" + s.Endpoints[i],
			"--raft-listen=" + addresses[members+i], fmt.Sprintf("--bootstrap-expect=%d", members), "--join=" + strings.Join(s.Endpoints, ","),
			"--pprof-listen=" + s.profiles[i]}
		if len(nodes) > 0 {
			args = append(args, "--redis="+strings.Join(nodes, ","))
		}
		if err := s.Add(id, s.program, args...); err != nil {
			return err
		}
	}
	return nil
}

// ready waits until the service grants locks of its modes.
func (s *service) ready(ctx context.Context) error {
	prefixes := []string{correctnessPrefix}
	if len(s.redis) > 0 {
		prefixes = append(prefixes, efficiencyPrefix)
	}
	for _, prefix := range prefixes {
		t := &target{prefix: prefix, endpoints: s.Endpoints}
		for {
			err := t.tryOnce(ctx)
			if err == nil {
				break
			}
			if ctx.Err() != nil {
				return errors.Join(err, ctx.Err())
			}
			time.Sleep(100 * time.Millisecond)
		}
	}
	return nil
}

// leader returns the position of the member that leads.
func (s *service) leader(ctx context.Context) (int, error) {
	for i, endpoint := range s.Endpoints {
		if !s.Servers[i].Running() {
			continue
		}
		status, err := statusOf(ctx, endpoint)
		if err == nil && status.GetServes() {
			return i, nil
		}
	}
	return 0, errors.New("no member of leased leads")
}

func statusOf(ctx context.Context, endpoint string) (*leasedv1.StatusResponse, error) {
	conn, err := grpc.NewClient(endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return leasedv1.NewClusterServiceClient(conn).Status(ctx, &leasedv1.StatusRequest{})
}

// restore starts killed members, and waits until they follow the leader's log.
func (s *service) restore(ctx context.Context) error {
	if err := s.Restart(); err != nil {
		return err
	}
	return s.Wait(ctx, func(i int) error {
		status, err := statusOf(ctx, s.Endpoints[i])
		if err == nil && (status.GetLeader() == "" || status.GetAppliedIndex() < status.GetCommitIndex()) {
			err = errors.New("it does not follow a leader yet")
		}
		return err
	})
}

func (s *service) pids() []int {
	pids := s.Pids()
	for _, node := range s.redis {
		pids = append(pids, node.Pid())
	}
	return pids
}

func (s *service) stop() {
	s.Stop()
	for _, node := range s.redis {
		node.Close()
	}
}
