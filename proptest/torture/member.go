//go:build linux

package torture

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/proptest/promise"
)

// statusLimit is how long a member may take to say how it is doing.
const statusLimit = 2 * time.Second

// member is one member of the cluster.
type member struct {
	world     *world
	number    int
	name      string
	api, raft string
	process   *process
}

// who is its name in histories.
func (m *member) who() string { return "member " + m.name }

// status asks it how it is doing.
func (m *member) status(ctx context.Context) (*pb.StatusResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, statusLimit)
	defer cancel()
	config, err := trust(m.world.authority.ca())
	if err != nil {
		return nil, err
	}
	conn, err := grpc.NewClient(m.api, grpc.WithTransportCredentials(credentials.NewTLS(config)))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return pb.NewClusterServiceClient(conn).Status(ctx, &pb.StatusRequest{})
}

func (m *member) knowsLeader() bool {
	s, err := m.status(context.Background())
	return err == nil && s.Leader != ""
}

// revive starts it if it does not run.
func (m *member) revive() error {
	if runs, _ := m.process.alive(); runs {
		return nil
	}
	return m.process.start()
}

// applied is the event of what it has applied.
func (m *member) applied(s *pb.StatusResponse) (promise.Event, error) {
	e := promise.Event{Kind: promise.Applied, Who: m.who(), At: m.world.now(), Index: s.ChainIndex}
	if len(s.ChainHash) < 16 {
		return e, fmt.Errorf("member %s has hash %q", m.name, s.ChainHash)
	}
	hash, err := strconv.ParseUint(s.ChainHash[:16], 16, 64)
	e.Hash = hash
	return e, err
}

// alarms are words that no member may ever print.
var alarms = []string{"panic:", "DATA RACE", "fatal error:", "chain hash", "diverged"}

// alarm is the first line of its log with such a word.
func (m *member) alarm() string {
	text, err := os.ReadFile(m.process.log)
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

// leader is the member that leads, as one of them says, or nil.
func (w *world) leader(ctx context.Context) *member {
	for _, m := range w.members {
		s, err := m.status(ctx)
		if err != nil || s.Leader == "" {
			continue
		}
		for _, other := range w.members {
			if other.name == s.Leader {
				return other
			}
		}
	}
	return nil
}
