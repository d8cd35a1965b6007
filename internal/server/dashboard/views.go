package dashboard

import (
	"context"
	"encoding/json"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/server/auth"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore"
)

// changeInterval is the shortest time between two events of the view of a lock.
const changeInterval = 250 * time.Millisecond

// message is a message of the API.
type message = proto.Message

// locks sends the sorted list of locks.
func (h *Handler) locks(ctx context.Context, s *stream, q query) error {
	return h.leases.Overview(q.overview, &messages[pb.OverviewResponse]{ctx: ctx,
		send: func(m *pb.OverviewResponse) error {
			s.send("locks", h.encode(m))
			return ctx.Err()
		}})
}

// messages is a gRPC stream that passes its messages to a function.
type messages[T any] struct {
	grpc.ServerStream
	ctx  context.Context
	send func(*T) error
}

func (m *messages[T]) Context() context.Context { return m.ctx }
func (m *messages[T]) Send(next *T) error       { return m.send(next) }

// lock sends a lock and its history, when they change and at intervals.
func (h *Handler) lock(ctx context.Context, s *stream, q query) error {
	changed, stop := h.changes(ctx, q)
	defer stop()
	for {
		if err := h.sendLock(ctx, s, q); err != nil {
			return err
		}
		if engine.Sleep(ctx, changeInterval) != nil {
			return nil
		}
		select {
		case <-changed:
		case <-time.After(summaryInterval - changeInterval):
		case <-ctx.Done():
		}
	}
}

// changes returns a channel that receives after changes of a lock, until stop is called.
func (h *Handler) changes(ctx context.Context, q query) (changed <-chan struct{}, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	wake, done := make(chan struct{}, 1), make(chan struct{})
	go func() {
		defer close(done)
		// If the watch fails, the view is updated at intervals only.
		_ = h.leases.Watch(&pb.WatchRequest{Resource: q.resource}, &messages[pb.Event]{ctx: ctx, send: func(*pb.Event) error {
			select {
			case wake <- struct{}{}:
			default:
			}
			return ctx.Err()
		}})
	}()
	return wake, func() { cancel(); <-done }
}

// sendLock sends the event of a lock.
func (h *Handler) sendLock(ctx context.Context, s *stream, q query) error {
	name := fencing.Resource(q.resource)
	readLock, readHistory := h.leases.Inspect, h.leases.History
	if q.local {
		readHistory = h.leases.LocalHistory
		if h.router.ModeOf(name) == engine.Correctness {
			readLock = h.leases.LocalInspect
		}
	}
	lock, err := readLock(ctx, &pb.InspectRequest{Resource: q.resource})
	if err != nil {
		return err
	}
	events, err := readHistory(ctx, &pb.HistoryRequest{Resource: q.resource})
	if err != nil {
		return err
	}
	policy := h.router.Node.Topology().Policies.Match(name)
	event := lockEvent{Lock: h.encode(lock.Lock), History: h.encode(events),
		MayBreak: auth.Can(ctx, auth.Break, q.resource)}
	if policy != (engine.Policy{}) {
		event.Policy = &policy.Prefix
	}
	if event.Migration, err = h.migration(ctx, policy); err != nil {
		return err
	}
	s.sendJSON("lock", event)
	return nil
}

// migration returns the migration of a lock with a policy, or nil if there is none. Everyone with a
// right may list the policies and the migrations.
func (h *Handler) migration(ctx context.Context, policy engine.Policy) (json.RawMessage, error) {
	if policy.Next == engine.AnyMode {
		return nil, nil
	}
	list, err := h.admin.ReadPolicies(ctx, raftstore.Stale)
	if err != nil {
		return nil, err
	}
	for _, m := range list.Migrations {
		if m.Prefix == policy.Prefix {
			return h.encode(m), nil
		}
	}
	return nil, nil // it has just ended
}

// lockEvent is the event of the view of a lock.
type lockEvent struct {
	Lock      json.RawMessage `json:"lock"`
	History   json.RawMessage `json:"history"`
	MayBreak  bool            `json:"mayBreak"`
	Policy    *string         `json:"policy,omitempty"` // its prefix
	Migration json.RawMessage `json:"migration,omitempty"`
}

// cluster sends the state of all members and of the Redis nodes.
func (h *Handler) cluster(ctx context.Context, s *stream, _ query) error {
	members, err := h.admin.ClusterStatus(ctx, &pb.ClusterStatusRequest{})
	if err != nil {
		return err
	}
	nodes, err := h.admin.GetFleet(ctx, &pb.GetFleetRequest{})
	if err != nil {
		return err
	}
	s.sendJSON("cluster", clusterEvent{h.encode(members), h.encode(nodes)})
	return nil
}

// clusterEvent is the event of the view of the cluster.
type clusterEvent struct {
	Cluster json.RawMessage `json:"cluster"`
	Fleet   json.RawMessage `json:"fleet"`
}

// policies sends the policies and the running changes of modes.
func (h *Handler) policies(ctx context.Context, s *stream, q query) error {
	consistency := raftstore.Linearizable
	if q.local {
		consistency = raftstore.Stale
	}
	list, err := h.admin.ReadPolicies(ctx, consistency)
	if err != nil {
		return err
	}
	s.send("policies", h.encode(list))
	return nil
}
