package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	leasedv1 "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/bench/meter"
	"github.com/leased-project/leased/bench/peers"
	"github.com/leased-project/leased/bench/peers/leased"
	"github.com/leased-project/leased/bench/results"
	"github.com/leased-project/leased/internal/load"
)

// cluster is three running members.
type cluster struct {
	peers.Peer
	endpoints []string
}

// startCluster starts members for correctness mode.
func (b *bench) startCluster(ctx context.Context) (*cluster, error) {
	b.line.Show("starting three members")
	kind := leased.Raft(b.program)
	peer, err := kind.Start(ctx, b.folder)
	if err != nil {
		return nil, err
	}
	c := &cluster{Peer: peer}
	if err := json.Unmarshal([]byte(peer.Address()), &c.endpoints); err != nil {
		peer.Stop()
		return nil, fmt.Errorf("read the addresses of the members %q: %w", peer.Address(), err)
	}
	b.run.Versions[kind.Name] = peer.Version()
	return c, nil
}

// leader returns the position of the member that serves.
func (c *cluster) leader(ctx context.Context) (int, error) {
	for i, endpoint := range c.endpoints {
		serves := false
		err := c.call(ctx, endpoint, func(service leasedv1.ClusterServiceClient) error {
			status, err := service.Status(ctx, &leasedv1.StatusRequest{})
			serves = status.GetServes()
			return err
		})
		if err == nil && serves {
			return i, nil
		}
	}
	return 0, errors.New("no member leads")
}

// call calls a member.
func (c *cluster) call(_ context.Context, endpoint string, do func(leasedv1.ClusterServiceClient) error) error {
	conn, err := grpc.NewClient(endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	return do(leasedv1.NewClusterServiceClient(conn))
}

// metrics returns the metrics of a member by name, without those that have labels.
func (c *cluster) metrics(ctx context.Context, member int) (map[string]float64, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+c.endpoints[member]+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("read the metrics of member %s: %s", c.endpoints[member], response.Status)
	}
	found := map[string]float64{}
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		name, text, _ := strings.Cut(lines.Text(), " ")
		if value, err := strconv.ParseFloat(text, 64); err == nil && !strings.HasPrefix(name, "#") {
			found[name] = value
		}
	}
	return found, nil
}

// memory adds the memory of the leader, and the mean of the others.
func (c *cluster) memory(ctx context.Context, figures map[string]float64) error {
	leader, err := c.leader(ctx)
	if err != nil {
		return err
	}
	followers := 0.0
	for i, pid := range c.Pids()[:len(c.endpoints)] {
		if i == leader {
			figures[results.MemoryTotalLeader] = float64(meter.Memory(pid))
		} else {
			followers += float64(meter.Memory(pid))
		}
	}
	figures[results.MemoryTotalFollower] = followers / float64(len(c.endpoints)-1)
	return nil
}

// measure runs work against a peer, and returns its figures and the steal. AtEnd is called when the measured time is
// over, while the workers still work; it may be nil.
func (b *bench) measure(ctx context.Context, peer peers.Peer, work load.Work, warm time.Duration, atEnd func(figures map[string]float64) error) (
	figures map[string]float64, steal float64, err error) {
	m, figures := meter.New(peer.Pids), map[string]float64{}
	var failed error
	result, err := load.Run(ctx, peer, work, load.Options{WarmUp: warm, Length: b.length, Begin: m.Begin, End: func() {
		m.End()
		if atEnd != nil {
			failed = atEnd(figures)
		}
	}})
	if err := errors.Join(err, failed); err != nil {
		return nil, 0, err
	}
	if result.Pairs == 0 {
		return nil, 0, fmt.Errorf("no lock was granted by %s: %s", peer.Name(), result.FirstError)
	}
	used, thousand := m.Usage(), float64(result.Pairs)/1000
	maps.Copy(figures, map[string]float64{
		results.Rate: result.Rate(), results.P50: millis(result.Acquire.Quantile(.5)), results.P99: millis(result.Acquire.Quantile(.99)),
		results.CPU: millis(used.Servers+used.Client) / thousand, results.CPUServers: millis(used.Servers) / thousand, results.Errors: float64(result.Errors),
	})
	return figures, used.Steal, nil
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
