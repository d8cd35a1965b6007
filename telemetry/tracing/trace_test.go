package tracing_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/client"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/server"
	servertracing "github.com/leased-project/leased/internal/server/tracing"
	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore"
	"github.com/leased-project/leased/storagegate"
	"github.com/leased-project/leased/storagegate/memgate"
	"github.com/leased-project/leased/telemetry/tracing"
)

// heartbeat is long, so that a busy machine elects no new leader in the middle of a trace.
const heartbeat = 2 * time.Second

var quiet = slog.New(slog.DiscardHandler)

// startMember starts a member in this process, which exports its spans to a collector.
func startMember(t testing.TB, id string, fleet engine.Fleet, endpoint string, sample float64) (*raftstore.Node,
	*server.Server) {
	t.Helper()
	tracer, err := servertracing.Open(servertracing.Config{Endpoint: endpoint, Sample: sample, Member: id, Version: "test",
		Logger: quiet})
	require.NoError(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s, err := server.New(server.Config{Logger: quiet, Redis: fleet, Version: "test", Tracer: tracer,
		Raft: raftstore.Config{ID: id, Dir: t.TempDir(), Address: "127.0.0.1:0", Logger: quiet, HeartbeatTimeout: heartbeat}},
		listener)
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() { done <- s.Serve() }()
	t.Cleanup(func() {
		require.NoError(t, s.Close())
		require.NoError(t, <-done)
		_ = tracer.Close()
	})
	return s.Node(), s
}

// traced is a service of three members with traces, and a traced program.
type traced struct {
	*collector
	leader    *raftstore.Node
	addresses []string
	tracer    *tracing.Tracer
	spans     trace.Tracer // of the program itself
	client    *lease.Client
	other     *lease.Client // is not traced
	gate      storagegate.Gate[*int]
}

func startTraced(t *testing.T) *traced {
	t.Helper()
	s := &traced{collector: startCollector(t)}
	fleet := engine.Fleet{Namespace: "test", MaxTTL: time.Minute}
	for range 3 {
		fleet.Addresses = append(fleet.Addresses, testserver.Redis(t).Addr)
	}
	var nodes []*raftstore.Node
	for i := range 3 {
		node, member := startMember(t, fmt.Sprintf("n%d", i+1), fleet, s.URL, 1)
		if i == 0 {
			require.NoError(t, node.Bootstrap())
			testserver.Eventually(t, "a leader", node.Leads)
		} else {
			require.NoError(t, member.Join(testserver.Context(t), s.addresses[0]))
		}
		nodes, s.addresses = append(nodes, node), append(s.addresses, member.Address())
	}
	s.leader = nodes[0]
	_, err := s.leader.SetPolicy(testserver.Context(t), engine.Policy{Prefix: "fast/", Mode: engine.Efficiency}, 0, true)
	require.NoError(t, err)
	for _, node := range nodes {
		testserver.Eventually(t, "efficiency mode is ready", func() bool {
			mode, err := node.Topology().ModeOf("fast/")
			return err == nil && mode == engine.Efficiency && node.Topology().Ready
		})
	}
	provider := s.newProvider(t)
	s.tracer, s.spans = tracing.New(provider), provider.Tracer("program")
	dial := func(options ...lease.Option) *lease.Client {
		c, err := client.Dial(testserver.Context(t), s.addresses, client.WithLeaseOptions(options...))
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, c.Close(context.Background())) })
		return c
	}
	s.client, s.other = dial(lease.WithHooks(s.tracer.Hooks()), lease.WithName("traced")), dial()
	s.gate = tracing.Gate(s.tracer, storagegate.Gate[*int](memgate.New[int](fencing.Rule{})))
	return s
}

// leaderAddress returns the API address of the leader.
func (s *traced) leaderAddress(t testing.TB) string {
	t.Helper()
	_, address, err := s.leader.AwaitLeader(testserver.Context(t))
	require.NoError(t, err)
	return address
}

// TestTraces runs on one service of three members, with Redis nodes.
func TestTraces(t *testing.T) {
	t.Parallel()
	s := startTraced(t)
	for name, test := range map[string]func(*testing.T, *traced){
		"correctness":   testCorrectness,
		"efficiency":    testEfficiency,
		"HTTP":          testHTTP,
		"unary gRPC":    testUnary,
		"refused":       testRefused,
		"another trace": testAnotherTrace,
	} {
		t.Run(name, func(t *testing.T) { test(t, s) })
	}
}

// A trace shows the acquire of the client, that of the service with its commit and its
// queue, and the write.
func testCorrectness(t *testing.T, s *traced) {
	holder, err := s.other.Acquire(testserver.Context(t), "jobs/7")
	require.NoError(t, err)
	ctx, root := s.spans.Start(testserver.Context(t), "deploy")
	type result struct {
		lease *lease.Lease
		err   error
	}
	done := make(chan result, 1)
	go func() {
		l, err := s.client.Acquire(ctx, "jobs/7")
		done <- result{l, err}
	}()
	testserver.Eventually(t, "a waiter", func() bool {
		status, err := s.leader.Inspect(testserver.Context(t), "jobs/7", raftstore.Stale)
		return err == nil && len(status.Waiters) == 1
	})
	require.NoError(t, holder.Release(testserver.Context(t)))
	got := <-done
	require.NoError(t, got.err)
	token := int64(got.lease.Token())
	require.NoError(t, s.gate.Enter(got.lease.Context(), "jobs/7", got.lease.Token()))
	require.NoError(t, s.gate.Do(got.lease.Context(), "jobs/7", got.lease.Token(), func(value *int) error {
		*value++
		return nil
	}))
	root.End()
	require.NoError(t, got.lease.Release(ctx))

	id := root.SpanContext().TraceID().String()
	acquire := s.await(t, id, "lease.Acquire")
	require.Equal(t, root.SpanContext().SpanID().String(), acquire.parent)
	require.Equal(t, []string{"queued"}, acquire.events)
	require.Equal(t, "jobs/7", acquire.values["leased.resource"])
	require.Equal(t, token, acquire.values["leased.token"])
	require.Equal(t, "correctness", acquire.values["leased.mode"])
	require.Equal(t, "traced", acquire.values["leased.holder"])

	served := s.await(t, id, "leased.Acquire")
	require.Equal(t, acquire.id, served.parent)
	require.Equal(t, "jobs/7", served.values["leased.resource"])
	require.Equal(t, token, served.values["leased.token"])
	require.Equal(t, "correctness", served.values["leased.mode"])
	require.Equal(t, "traced", served.values["leased.holder"])
	require.Equal(t, "ok", served.values["leased.outcome"])
	s.child(t, served, "commit")
	s.child(t, served, "queue")
	for _, name := range []string{"gate.Enter", "gate.Write"} {
		write := s.await(t, id, name)
		require.Equal(t, acquire.id, write.parent)
		require.Equal(t, "jobs/7", write.values["leased.resource"])
		require.Equal(t, token, write.values["leased.token"])
		require.Equal(t, "ok", write.values["leased.outcome"])
	}
}

// A Go client takes a lock in efficiency mode from Redis, without the service.
func testEfficiency(t *testing.T, s *traced) {
	ctx, root := s.spans.Start(testserver.Context(t), "deploy")
	defer root.End()
	l, err := s.client.Acquire(ctx, "fast/1")
	require.NoError(t, err)
	require.NoError(t, s.gate.Do(l.Context(), "fast/1", l.Token(), func(value *int) error { *value++; return nil }))
	require.NoError(t, l.Release(ctx))
	id := root.SpanContext().TraceID().String()
	acquire := s.await(t, id, "lease.Acquire")
	require.Equal(t, "efficiency", acquire.values["leased.mode"])
	require.Equal(t, int64(l.Token()), acquire.values["leased.token"])
	s.only(t, "a granted round", func(r span) bool {
		votes, _ := r.values["leased.votes"].(int64)
		return r.name == "redis round" && r.traceID == id && r.parent == acquire.id && votes >= 2 &&
			r.values["leased.outcome"] == "ok"
	})
	require.Equal(t, acquire.id, s.await(t, id, "gate.Write").parent)
}

// An HTTP caller sends a traceparent in a header, to any member.
func testHTTP(t *testing.T, s *traced) {
	for i, lock := range []string{"http/1", "fast/http"} {
		wait := []string{"0s", "1m"}[i] // a round with a slow node may grant nothing: then another one follows
		id, parent := fmt.Sprintf("%032x", 0xabc+i), "00f067aa0ba902b7"
		request, err := http.NewRequestWithContext(testserver.Context(t), http.MethodPost,
			"http://"+s.addresses[0]+"/v1/acquire",
			strings.NewReader(`{"resource":"`+lock+`","ttl":"10s","holder":"curl","wait":"`+wait+`"}`))
		require.NoError(t, err)
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("Traceparent", "00-"+id+"-"+parent+"-01")
		response, err := http.DefaultClient.Do(request)
		require.NoError(t, err)
		defer response.Body.Close()
		require.Equal(t, http.StatusOK, response.StatusCode)
		var answer struct{ Token int64 }
		require.NoError(t, json.NewDecoder(response.Body).Decode(&answer))
		served := s.await(t, id, "leased.Acquire")
		require.Equal(t, parent, served.parent)
		require.Equal(t, lock, served.values["leased.resource"])
		require.Equal(t, answer.Token, served.values["leased.token"])
		if lock == "http/1" {
			s.child(t, served, "commit")
			continue
		}
		round := s.only(t, "a granted round", func(r span) bool {
			return r.name == "redis round" && r.parent == served.id && r.values["leased.outcome"] == "ok"
		})
		require.Equal(t, int64(3), round.values["leased.nodes"])
	}
}

// A gRPC caller sends a traceparent in the metadata.
func testUnary(t *testing.T, s *traced) {
	conn, err := grpc.NewClient("passthrough:///"+s.leaderAddress(t),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer conn.Close()
	id := fmt.Sprintf("%032x", 0xdef)
	ctx := metadata.AppendToOutgoingContext(testserver.Context(t), "traceparent", "00-"+id+"-00f067aa0ba902b7-01")
	leases := pb.NewLeaseServiceClient(conn)
	granted, err := leases.Acquire(ctx, &pb.AcquireRequest{Resource: "unary"})
	require.NoError(t, err)
	_, err = leases.Release(ctx, &pb.ReleaseRequest{Resource: "unary", Token: granted.Token})
	require.NoError(t, err)
	require.Equal(t, int64(granted.Token), s.await(t, id, "leased.Acquire").values["leased.token"])
	require.Equal(t, int64(granted.Token), s.await(t, id, "leased.Release").values["leased.token"])
	_, err = leases.Acquire(metadata.AppendToOutgoingContext(testserver.Context(t), "traceparent", "nonsense"),
		&pb.AcquireRequest{Resource: "unary"})
	require.NoError(t, err, "an invalid traceparent is ignored")
}

// A refused acquire and a refused write say why.
func testRefused(t *testing.T, s *traced) {
	holder, err := s.other.Acquire(testserver.Context(t), "refused")
	require.NoError(t, err)
	defer func() { require.NoError(t, holder.Release(testserver.Context(t))) }()
	ctx, root := s.spans.Start(testserver.Context(t), "deploy")
	defer root.End()
	_, err = s.client.TryAcquire(ctx, "refused")
	require.ErrorIs(t, err, lease.ErrHeld)
	require.NoError(t, s.gate.Enter(testserver.Context(t), "refused", 9))
	require.Error(t, s.gate.Do(ctx, "refused", 8, func(*int) error { return nil }))
	id := root.SpanContext().TraceID().String()
	require.Equal(t, "held", s.await(t, id, "lease.Acquire").values["leased.outcome"])
	require.Equal(t, "held", s.await(t, id, "leased.Acquire").values["leased.outcome"])
	write := s.await(t, id, "gate.Write")
	require.Equal(t, "stale", write.values["leased.outcome"])
	require.Equal(t, int64(9), write.values["leased.mark"])
}

// Write finds the acquire by the lease: as the parent, or by a link from another trace.
func testAnotherTrace(t *testing.T, s *traced) {
	l, err := s.client.Acquire(testserver.Context(t), "linked")
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Release(testserver.Context(t))) }()
	nothing := func(context.Context) error { return nil }
	require.NoError(t, s.tracer.Write(testserver.Context(t), l, nothing))
	id := trace.SpanContextFromContext(l.Context()).TraceID().String()
	require.Equal(t, s.await(t, id, "lease.Acquire").id, s.await(t, id, "gate.Write").parent)

	ctx, root := s.spans.Start(testserver.Context(t), "another")
	require.NoError(t, s.tracer.Write(ctx, l, nothing))
	root.End()
	write := s.await(t, root.SpanContext().TraceID().String(), "gate.Write")
	require.Equal(t, root.SpanContext().SpanID().String(), write.parent)
	require.Equal(t, 1, write.links)
}
