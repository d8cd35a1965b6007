package peers

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
	"github.com/leased-project/leased/internal/testserver"
)

const (
	members    = 3
	redisNodes = 5
	policies   = "policies:\n  - {prefix: 'e/', mode: efficiency}\n  - {prefix: 'c/', mode: correctness}\n"
)

// service is three members on this machine.
type service struct {
	Cluster
	program  string
	profiles []string // addresses of the profiles of the members
	redis    []*testserver.RedisServer
}

// startService starts members with a number of Redis nodes.
func startService(ctx context.Context, dir string, program *Program, nodes int) (*service, error) {
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
	addresses, err := FreeAddresses(3 * members)
	if err != nil {
		return err
	}
	s.Endpoints, s.profiles = addresses[:members], addresses[2*members:]
	for i := range members {
		id := string(rune('a' + i))
		args := []string{"serve", "--config=" + file, "--id=" + id, "--data=" + filepath.Join(s.Dir, id),
			"--listen=" + s.Endpoints[i],
			"--raft-listen=" + addresses[members+i], fmt.Sprintf("--bootstrap-expect=%d", members),
			"--join=" + strings.Join(s.Endpoints, ","),
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
		t := &leaseTarget{prefix: prefix, endpoints: s.Endpoints}
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
		if s.Servers[i].Pid() == 0 {
			continue
		}
		status, err := statusOf(ctx, endpoint)
		if err == nil && status.GetServes() {
			return i, nil
		}
	}
	return 0, errors.New("no member of leased leads")
}

func statusOf(ctx context.Context, endpoint string) (status *leasedv1.StatusResponse, err error) {
	err = callMember(endpoint, func(service leasedv1.ClusterServiceClient) error {
		status, err = service.Status(ctx, &leasedv1.StatusRequest{})
		return err
	})
	return status, err
}

// callMember calls a member.
func callMember(endpoint string, do func(leasedv1.ClusterServiceClient) error) error {
	conn, err := grpc.NewClient(endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	return do(leasedv1.NewClusterServiceClient(conn))
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
