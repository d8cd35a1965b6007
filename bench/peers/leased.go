package peers

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	leasedv1 "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/client"
	"github.com/leased-project/leased/lease"
)

const (
	redisNodes = 5
	// Prefixes of the locks in each mode.
	efficiencyPrefix, correctnessPrefix = "e/", "c/"
	policies                            = "policies:\n  - {prefix: 'e/', mode: efficiency}\n" +
		"  - {prefix: 'c/', mode: correctness}\n"
)

// leasedKinds returns the ways to use the service: in correctness mode, also with the JSON API, and in efficiency mode,
// directly from five Redis nodes and through a member. Path is the program of the members; if it is empty, the program
// is built from this repository.
func leasedKinds(path string) []Kind {
	raft, redis := sharing(leasedStarter(path, 0)), sharing(leasedStarter(path, redisNodes))
	return []Kind{
		{Name: "leased", Start: raft, Open: openLeased(correctnessPrefix),
			Workloads: []string{"W1", "W2", "W3", "W4", "W6", "waiters", "batch", "sessions", "leases", "profile"}},
		{Name: "leased-json", Start: raft, Open: openJSON, ClientPerWorker: true, Workloads: []string{"W7"}},
		// Each lease in Redis is renewed by itself, so W3 holds fewer.
		{Name: "leased-efficiency", Start: redis, Open: openLeased(efficiencyPrefix), MaxLeases: 10_000,
			Workloads: []string{"W1", "W2", "W3"}},
		{Name: "leased-member", Start: redis, Open: openLeased(efficiencyPrefix, client.WithoutRedis()),
			Workloads: []string{"W1", "W2"}},
	}
}

// Efficiency returns efficiency mode with a number of Redis nodes, used directly.
func Efficiency(path string, nodes int) Kind {
	return Kind{Name: "leased-efficiency", Start: leasedStarter(path, nodes), Open: openLeased(efficiencyPrefix)}
}

// leasedStarter returns a function that starts three members with a number of Redis nodes.
func leasedStarter(path string, redisNodes int) starter {
	return func(ctx context.Context, dir string) (*Cluster, error) {
		redis, err := startRedis(redisNodes)
		if err != nil {
			return nil, err
		}
		c, err := leasedService(path, redis.Endpoints).start(ctx, dir)
		if err != nil {
			redis.Stop()
			return nil, err
		}
		c.Profiles, c.Redis = c.internal[1], redis.Endpoints
		c.join(redis)
		return c, nil
	}
}

// leasedService is three members that use some Redis nodes. Without any, the members have no efficiency mode.
func leasedService(path string, redis []string) service {
	s := service{
		name:    "leased",
		built:   build(leasedModule, "", leasedModule+"/cmd/leased"),
		version: firstLine("leased ", "version"),
		ready: func(ctx context.Context, endpoint string) error {
			status, err := statusOf(ctx, endpoint)
			if err == nil && (status.GetLeader() == "" || status.GetAppliedIndex() < status.GetCommitIndex()) {
				err = errors.New("it does not follow a leader yet")
			}
			return err
		},
		leads: func(ctx context.Context, endpoint string) bool {
			status, err := statusOf(ctx, endpoint)
			return err == nil && status.GetServes()
		},
		grants: func(ctx context.Context, endpoints []string) error {
			err := grants(ctx, endpoints, correctnessPrefix, lease.Correctness)
			if len(redis) > 0 {
				err = errors.Join(err, grants(ctx, endpoints, efficiencyPrefix, lease.Efficiency))
			}
			return err
		},
		args: func(c *Cluster, i int) ([]string, error) {
			file, text := filepath.Join(c.dir, nodeName(i)+".yaml"), ""
			if len(redis) > 0 {
				text = policies + "redis: [" + strings.Join(redis, ", ") + "]\n"
			}
			return []string{"serve", "--config=" + file, "--id=" + nodeName(i), "--data=" + filepath.Join(c.dir, nodeName(i)),
				"--listen=" + c.Endpoints[i], "--raft-listen=" + c.internal[0][i],
				"--bootstrap-expect=" + strconv.Itoa(nodes), "--join=" + strings.Join(c.Endpoints, ","),
				"--pprof-listen=" + c.internal[1][i]}, os.WriteFile(file, []byte(text), 0o600)
		},
	}
	if path != "" {
		s.built = func(context.Context, string) (string, error) { return path, nil }
	}
	return s
}

// Snapshot makes a member take a snapshot, and returns when it begins to send it.
func (c *Cluster) Snapshot(ctx context.Context, member int) error {
	return callMember(c.Endpoints[member], func(service leasedv1.ClusterServiceClient) error {
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
