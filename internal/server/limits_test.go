package server_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/server"
	"github.com/leased-project/leased/internal/server/limits"
	"github.com/leased-project/leased/internal/wire"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/lease/engine"
)

// startLimited starts a server with limits.
func startLimited(t testing.TB, change func(*limits.Limits)) *server.Server {
	t.Helper()
	return startServer(t, func(c *server.Config) {
		c.Limits = limits.Default()
		change(&c.Limits)
	})
}

// limitCase is a call that exceeds a limit. The lock "held" is held, and "queued" is
// held and has a waiter.
type limitCase struct {
	name   string // of the setting
	change func(*limits.Limits)
	call   *pb.AcquireRequest
	status int
	code   codes.Code
	err    error
}

func limitCases() []limitCase {
	name := strings.Repeat("n", 41)
	return []limitCase{
		{"limit-request-bytes", func(l *limits.Limits) { l.RequestBytes = 1024 },
			&pb.AcquireRequest{Resource: "a", Metadata: map[string]string{"k": strings.Repeat("v", 2000)}},
			http.StatusRequestEntityTooLarge, codes.ResourceExhausted, wire.ErrTooLarge},
		{"limit-name-bytes", func(l *limits.Limits) { l.NameBytes = 40 }, &pb.AcquireRequest{Resource: name},
			http.StatusBadRequest, codes.InvalidArgument, fencing.ErrInvalidResource},
		{"limit-metadata-bytes", func(l *limits.Limits) {
			l.MetadataBytes = 3
		}, &pb.AcquireRequest{Resource: "a", Metadata: map[string]string{"k": "vvv"}},
			http.StatusBadRequest, codes.InvalidArgument, engine.ErrInvalid},
		{"limit-set-size", func(l *limits.Limits) { l.SetSize = 2 }, &pb.AcquireRequest{Resources: []string{"a", "b", "c"}},
			http.StatusBadRequest, codes.InvalidArgument, engine.ErrInvalid},
		{"limit-ttl-max", func(l *limits.Limits) {
			l.TTLMax = 10 * time.Minute
		}, &pb.AcquireRequest{Resource: "a", Ttl: "1h"},
			http.StatusBadRequest, codes.InvalidArgument, engine.ErrInvalid},
		{"limit-ttl-min", func(l *limits.Limits) { l.TTLMin = time.Minute }, &pb.AcquireRequest{Resource: "a", Ttl: "5s"},
			http.StatusBadRequest, codes.InvalidArgument, engine.ErrInvalid},
		{"limit-sessions-per-user", func(l *limits.Limits) {
			l.Cluster.SessionsPerUser = 3
		}, &pb.AcquireRequest{Resource: "a"},
			http.StatusTooManyRequests, codes.ResourceExhausted, engine.ErrLimit},
		{"limit-leases-per-user", func(l *limits.Limits) { l.Cluster.LeasesPerUser = 3 }, &pb.AcquireRequest{Resource: "a"},
			http.StatusTooManyRequests, codes.ResourceExhausted, engine.ErrLimit},
		{"limit-waiters-per-user", func(l *limits.Limits) {
			l.Cluster.WaitersPerUser = 1
		}, &pb.AcquireRequest{Resource: "held", Wait: "10m"},
			http.StatusTooManyRequests, codes.ResourceExhausted, engine.ErrLimit},
		{"limit-waiters-per-lock", func(l *limits.Limits) {
			l.Cluster.WaitersPerLock = 1
		}, &pb.AcquireRequest{Resource: "queued", Wait: "10m"},
			http.StatusTooManyRequests, codes.ResourceExhausted, engine.ErrLimit},
	}
}

// A member counts the leases of a user in efficiency mode, and forgets those that are released.
func TestLeaseLimitInEfficiencyMode(t *testing.T) {
	t.Parallel()
	fleet := fleetOf(startRedis(t, 1), longTTL)
	s := startServer(t, func(c *server.Config) {
		c.Redis, c.Limits = fleet, limits.Default()
		c.Limits.Cluster.LeasesPerUser = 2
	})
	a := s.Address()
	setMode(t, a, "fast/", engine.Efficiency)
	acquire := func(name string, want int) (answer map[string]any) {
		code := 0
		eventually(t, "the node answers", func() bool {
			code, answer = post(t, a, "/v1/acquire", fmt.Sprintf(`{"resource":%q,"ttl":"1m"}`, name))
			return code != http.StatusServiceUnavailable
		})
		require.Equal(t, want, code, answer)
		return answer
	}
	first := acquire("fast/1", http.StatusOK)
	acquire("fast/2", http.StatusOK)
	require.Contains(t, acquire("fast/3", http.StatusTooManyRequests)["message"], "limit-leases-per-user")
	mustPost(t, a, "/v1/release", leaseName(first))
	acquire("fast/3", http.StatusOK)
}

// Lowered limits end nothing: a lease that they would refuse is renewed as it is. They apply to what a renewal changes.
func TestLoweredLimitsKeepLeases(t *testing.T) {
	t.Parallel()
	const ttl = 10 * time.Minute
	c := startClusterWithRedis(t, 1, fleetOf(startRedis(t, 1), ttl))
	m, id := c.members[0], engine.NewSessionID()
	stream := openStreamAs(t, m.spec.API, "")
	acquire := &pb.AcquireCall{Nonce: 7, Resources: []string{"fast/1", "fast/22"}, TtlNanos: int64(ttl),
		Metadata: map[string]string{"build": "1234"}}
	own := stream.call(id, &pb.Operation{Call: &pb.Operation_Acquire{Acquire: acquire}})
	require.Nil(t, own.Error)
	granted := mustPost(t, m.spec.API, "/v1/acquire", `{"resource":"a","ttl":"10m"}`)

	m.kill()
	lower := limits.Default()
	lower.TTLMax, lower.MetadataBytes, lower.NameBytes, lower.SetSize = time.Minute, 8, 6, 1
	m.spec.Limits = lower
	m.start()
	stream = openStreamAs(t, m.spec.API, "")
	renew := func(ttl time.Duration, build string) *pb.Answer {
		return renewLease(stream, id, &pb.HeldLease{Nonce: 7, Name: own.Name, Resources: acquire.Resources, Token: own.Token,
			TtlNanos: int64(ttl), Metadata: map[string]string{"build": build}})
	}
	eventually(t, "the lease is renewed", func() bool {
		answer := renew(ttl, "1234")
		require.NotEqual(t, "invalid", answer.Error.GetCode(), answer.Error)
		return len(answer.Holds) == 1
	})
	require.Contains(t, renew(ttl+1, "1234").Error.GetMessage(), "limit-ttl-max")
	require.Contains(t, renew(ttl, "1235").Error.GetMessage(), "limit-metadata-bytes")
	require.Len(t, renew(ttl, "1").Holds, 1)
	require.Len(t, renew(ttl/2, "1").Holds, 1)
	require.Contains(t, renew(ttl, "1").Error.GetMessage(), "limit-ttl-max")
	name := fmt.Sprintf(`{"resource":"fast/1","token":%d,`, own.Token)
	mustPost(t, m.spec.API, "/v1/renew", name+`"ttl":"5m","metadata":{"build":"2"}}`)
	mustPost(t, m.spec.API, "/v1/renew", name+`"ttl":"1m"}`)
	code, answer := post(t, m.spec.API, "/v1/renew", name+`"ttl":"10m"}`)
	require.Equal(t, http.StatusBadRequest, code, answer)

	name = fmt.Sprintf(`{"resource":"a","token":%v,`, granted["token"])
	mustPost(t, m.spec.API, "/v1/renew", name+`"metadata":{"build":"2"}}`)
	code, answer = post(t, m.spec.API, "/v1/renew", name+`"ttl":"11m"}`)
	require.Equal(t, http.StatusBadRequest, code, answer)
}

// Every limit refuses a call that would exceed it with an error that names the setting
// and its value: by gRPC, by HTTP and in the Go client.
func TestLimits(t *testing.T) {
	t.Parallel()
	for _, c := range limitCases() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := startLimited(t, c.change)
			ctx := testContext(t)
			api := pb.NewLeaseServiceClient(dial(t, s.Address()))
			for _, name := range []string{"held", "queued"} {
				_, err := api.Acquire(ctx, &pb.AcquireRequest{Resource: name, Ttl: "5m"})
				require.NoError(t, err)
			}
			go func() { _, _ = api.Acquire(ctx, &pb.AcquireRequest{Resource: "queued", Ttl: "5m", Wait: "10m"}) }()
			eventually(t, "the waiter is queued", func() bool {
				r, err := api.Inspect(ctx, &pb.InspectRequest{Resource: "queued"})
				return err == nil && len(r.Lock.Waiters) == 1
			})

			_, err := api.Acquire(ctx, c.call)
			require.Equal(t, c.code, status.Code(err))
			require.ErrorIs(t, wire.FromStatus(err), c.err)
			require.ErrorContains(t, err, c.name)

			body := fmt.Sprintf(`{"resource":%q,"ttl":%q,"wait":%q}`, c.call.Resource, c.call.Ttl, c.call.Wait)
			switch {
			case c.call.Metadata != nil:
				body = fmt.Sprintf(`{"resource":"a","metadata":{"k":%q}}`, c.call.Metadata["k"])
			case c.call.Resources != nil:
				body = `{"resources":["a","b","c"]}`
			}
			code, answer := post(t, s.Address(), "/v1/acquire", body)
			require.Equal(t, c.status, code)
			require.Contains(t, answer["message"], c.name)

			client, err := lease.New(newClient(t, []string{s.Address()}))
			require.NoError(t, err)
			t.Cleanup(func() { _ = client.Close(ctx) })
			_, err = client.Acquire(ctx, goName(c.call), goOptions(c.call)...)
			require.ErrorIs(t, err, c.err)
			require.ErrorContains(t, err, c.name)
		})
	}
}

func goName(r *pb.AcquireRequest) fencing.Resource {
	if r.Resource == "" {
		return fencing.Resource(r.Resources[0])
	}
	return fencing.Resource(r.Resource)
}

// goOptions returns the options of the Go client for a call.
func goOptions(r *pb.AcquireRequest) []lease.AcquireOption {
	options := []lease.AcquireOption{lease.WithTTL(2 * time.Minute)}
	if ttl, err := time.ParseDuration(r.Ttl); err == nil {
		options[0] = lease.WithTTL(ttl)
	}
	if r.Metadata != nil {
		options = append(options, lease.WithMetadata(r.Metadata))
	}
	if len(r.Resources) > 0 {
		options = append(options, lease.WithSet("b", "c"))
	}
	return options
}

// A user that makes too many requests is told when to try again, and still renews.
func TestRequestRate(t *testing.T) {
	t.Parallel()
	s := startLimited(t, func(l *limits.Limits) { l.RequestsPerSecond = 3 })
	stream := openStream(t, s.Address(), engine.NewSessionID())
	held := mustPost(t, s.Address(), "/v1/acquire", `{"resource":"a","ttl":"10m"}`)
	eventually(t, "the rate is exhausted", func() bool {
		response, err := http.DefaultClient.Do(newPost(t, s.Address(), "/v1/inspect", `{"resource":"a"}`))
		require.NoError(t, err)
		defer response.Body.Close()
		return response.StatusCode == http.StatusTooManyRequests && response.Header.Get("Retry-After") != ""
	})
	eventually(t, "a renewal is allowed", func() bool {
		code, _ := post(t, s.Address(), "/v1/renew", fmt.Sprintf(`{"sessionId":%q}`, held["sessionId"]))
		return code == http.StatusOK
	})
	eventually(t, "an operation of a stream is refused", func() bool { return stream.open() == "limit" })
}

// The streams of a user are limited, by gRPC and HTTP together.
func TestStreamsPerUser(t *testing.T) {
	t.Parallel()
	s := startLimited(t, func(l *limits.Limits) { l.StreamsPerUser = 1 })
	first := openStream(t, s.Address(), engine.NewSessionID())
	require.Empty(t, first.open())
	second, err := pb.NewPolicyServiceClient(dial(t, s.Address())).WatchTopology(testContext(t),
		&pb.WatchTopologyRequest{})
	require.NoError(t, err)
	_, err = second.Recv()
	require.ErrorIs(t, wire.FromStatus(err), engine.ErrLimit)
	require.ErrorContains(t, err, "limit-streams-per-user")
	code, answer := post(t, s.Address(), "/v1/watch", `{"resource":"a"}`)
	require.Equal(t, http.StatusTooManyRequests, code)
	require.Contains(t, answer["message"], "limit-streams-per-user")
	require.NoError(t, first.stream.CloseSend())
	eventually(t, "another stream is accepted", func() bool {
		stream, err := pb.NewLeaseServiceClient(dial(t, s.Address())).Session(testContext(t))
		require.NoError(t, err)
		id := engine.NewSessionID()
		require.NoError(t, stream.Send(&pb.SessionRequest{Operations: []*pb.Operation{{Id: 1, Session: id[:],
			Call: &pb.Operation_Attach{Attach: &pb.AttachCall{}}}}}))
		_, err = stream.Recv()
		return err == nil
	})
}

// A semaphore has the number of permits with which it is held.
func TestPermitsBelongToTheLock(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	mustPost(t, s.Address(), "/v1/acquire", `{"resource":"p","permits":2,"ttl":"10m"}`)
	code, answer := post(t, s.Address(), "/v1/acquire", `{"resource":"p","permits":3,"ttl":"10m"}`)
	require.Equal(t, http.StatusConflict, code)
	require.Equal(t, "permits-mismatch", answer["code"])
	require.Contains(t, answer["message"], "has 2 permits")
	_, err := pb.NewLeaseServiceClient(dial(t, s.Address())).Acquire(testContext(t), &pb.AcquireRequest{Resource: "p",
		Permits: 1, Wait: "10m"})
	require.Equal(t, codes.FailedPrecondition, status.Code(err))
	require.ErrorIs(t, wire.FromStatus(err), engine.ErrPermits)
}
