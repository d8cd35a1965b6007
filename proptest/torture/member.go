//go:build linux

package torture

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/proptest/property"
)

// statusLimit bounds one call to a member.
const statusLimit = 2 * time.Second

// member is one member of the cluster.
type member struct {
	world     *world
	number    int
	name      string
	api, raft string
	process   *testserver.Process
}

// who returns its name in histories.
func (m *member) who() string { return "member " + m.name }

// call makes one call to its API.
func (m *member) call(ctx context.Context, do func(context.Context, *grpc.ClientConn) error) error {
	ctx, cancel := context.WithTimeout(ctx, statusLimit)
	defer cancel()
	config, err := trust(m.world.ca())
	if err != nil {
		return err
	}
	conn, err := grpc.NewClient(m.api, grpc.WithTransportCredentials(credentials.NewTLS(config)))
	if err != nil {
		return err
	}
	defer conn.Close()
	return do(ctx, conn)
}

// status returns its status.
func (m *member) status(ctx context.Context) (s *pb.StatusResponse, err error) {
	err = m.call(ctx, func(ctx context.Context, conn *grpc.ClientConn) error {
		s, err = pb.NewClusterServiceClient(conn).Status(ctx, &pb.StatusRequest{})
		return err
	})
	return s, err
}

// fleetReady reports whether the efficiency mode is ready, according to this member.
func (m *member) fleetReady() bool {
	ready := false
	err := m.call(context.Background(), func(ctx context.Context, conn *grpc.ClientConn) error {
		fleet, err := pb.NewRedisServiceClient(conn).GetFleet(ctx, &pb.GetFleetRequest{})
		ready = err == nil && fleet.Ready
		return err
	})
	return err == nil && ready
}

func (m *member) knowsLeader() bool {
	s, err := m.status(context.Background())
	return err == nil && s.Leader != ""
}

// revive starts it if it does not run.
func (m *member) revive() error {
	if runs, _ := m.process.Alive(); runs {
		return nil
	}
	return m.process.Start()
}

// applied returns the event with its chain hash.
func (m *member) applied(s *pb.StatusResponse) (property.Event, error) {
	e := property.Event{Kind: property.Applied, Who: m.who(), At: m.world.now(), Index: s.ChainIndex}
	if len(s.ChainHash) < 16 {
		return e, fmt.Errorf("member %s reports hash %q", m.name, s.ChainHash)
	}
	hash, err := strconv.ParseUint(s.ChainHash[:16], 16, 64)
	e.Hash = hash
	return e, err
}

// alarms are words that no member may log.
var alarms = []string{"panic:", "DATA RACE", "fatal error:", "chain hash", "diverged"}

// alarm returns the first line of its log with such a word, or "".
func (m *member) alarm() string {
	text, err := os.ReadFile(m.process.Log)
	if err != nil {
		return ""
	}
	for line := range bytes.Lines(text) {
		for _, word := range alarms {
			if bytes.Contains(line, []byte(word)) {
				return string(bytes.TrimSpace(line))
			}
		}
	}
	return ""
}

// leader returns the leader, or nil. It asks all members concurrently, since a paused one
// does not answer, and takes the highest term, since a deposed leader may not know it.
func (w *world) leader(ctx context.Context) *member {
	answers := make([]*pb.StatusResponse, len(w.members))
	var wg sync.WaitGroup
	for i, m := range w.members {
		wg.Go(func() { answers[i], _ = m.status(ctx) })
	}
	wg.Wait()
	var leader *member
	term := uint64(0)
	for _, s := range answers {
		if s == nil || s.Leader == "" || s.Term < term {
			continue
		}
		for _, m := range w.members {
			if m.name == s.Leader {
				leader, term = m, s.Term
			}
		}
	}
	return leader
}

// atLeader makes a call to the leader.
func (w *world) atLeader(ctx context.Context, do func(context.Context, pb.PolicyServiceClient) error) error {
	leader := w.leader(ctx)
	if leader == nil {
		return errors.New("no member knows a leader")
	}
	return leader.call(ctx, func(ctx context.Context, conn *grpc.ClientConn) error {
		return do(ctx, pb.NewPolicyServiceClient(conn))
	})
}
