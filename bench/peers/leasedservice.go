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
	"github.com/leased-project/leased/lease"
)

const (
	members    = 3
	redisNodes = 5
	policies   = "policies:\n  - {prefix: 'e/', mode: efficiency}\n  - {prefix: 'c/', mode: correctness}\n"
)

// service is three members on this machine.
type service struct {
	Cluster
	// Profiles are the addresses of the members for CPU profiles, as net/http/pprof serves them.
	Profiles []string
	redis    []*testserver.RedisServer
}

// startService starts members with a number of Redis nodes.
func startService(ctx context.Context, dir string, program *Program, nodes int) (*service, error) {
	s := &service{}
	s.ready = s.serves
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
	})
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
	addresses, err := testserver.FreeAddresses(3 * members)
	if err != nil {
		return err
	}
	s.Endpoints, s.Profiles = addresses[:members], addresses[2*members:]
	for i := range members {
		id := string(rune('a' + i))
		args := []string{"serve", "--config=" + file, "--id=" + id, "--data=" + filepath.Join(s.Dir, id),
			"--listen=" + s.Endpoints[i],
			"--raft-listen=" + addresses[members+i], fmt.Sprintf("--bootstrap-expect=%d", members),
			"--join=" + strings.Join(s.Endpoints, ","),
			"--pprof-listen=" + s.Profiles[i]}
		if len(nodes) > 0 {
			args = append(args, "--redis="+strings.Join(nodes, ","))
		}
		if err := s.Add(id, s.program, args...); err != nil {
			return err
		}
	}
	return nil
}

// serves waits until the service grants locks of its modes.
func (s *service) serves(ctx context.Context) error {
	modes := map[string]lease.Mode{correctnessPrefix: lease.Correctness}
	if len(s.redis) > 0 {
		modes[efficiencyPrefix] = lease.Efficiency
	}
	for prefix, mode := range modes {
		for err := s.grants(ctx, prefix, mode); err != nil; err = s.grants(ctx, prefix, mode) {
			if ctx.Err() != nil {
				return errors.Join(err, ctx.Err())
			}
			time.Sleep(2 * pollTime)
		}
	}
	return nil
}

// Version implements [Peer].
func (s *service) Version() string { return firstLine("leased ", s.program, "version") }

// Leader returns the number of the member that leads.
func (s *service) Leader(ctx context.Context) (int, error) {
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

// KillLeader implements [Killer].
func (s *service) KillLeader(ctx context.Context) error {
	leader, err := s.Leader(ctx)
	if err != nil {
		return err
	}
	s.Servers[leader].Kill()
	return nil
}

// Snapshot makes a member take a snapshot, and returns when it begins to send it.
func (s *service) Snapshot(ctx context.Context, member int) error {
	return callMember(s.Endpoints[member], func(service leasedv1.ClusterServiceClient) error {
		stream, err := service.SaveSnapshot(ctx, &leasedv1.SaveSnapshotRequest{})
		if err == nil {
			_, err = stream.Recv()
		}
		return err
	})
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

// Restore starts killed members, and waits until they follow the leader's log.
func (s *service) Restore(ctx context.Context) error {
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

// Pids returns the process ids of the members, and of the Redis nodes.
func (s *service) Pids() []int {
	pids := s.Cluster.Pids()
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
