package leases

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/internal/server/audit"
	"github.com/leased-project/leased/internal/server/calls"
	"github.com/leased-project/leased/internal/server/limits"
	"github.com/leased-project/leased/internal/server/metrics"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/lease/leasetest"
	"github.com/leased-project/leased/raftstore"
	"github.com/leased-project/leased/raftstore/machine"
)

// A user whose acquires have exhausted the rate can still keep and end what it has, also after a failover: a new
// stream, an attach, a renewal, a release or a close counts against twice the rate.
func TestRateOfStreamOperations(t *testing.T) {
	t.Parallel()
	const rate = 8
	few := limits.Default()
	few.RequestsPerSecond = rate
	chain := &calls.Chain{Limits: limits.NewAccounts(few, leasetest.NewStoppedClock()), Metrics: metrics.New("", "")}
	connect := func() error {
		return chain.Stream(&answeredClient{ctx: t.Context()}, pb.LeaseService_Session_FullMethodName,
			func(_ grpc.ServerStream, done func()) error { done(); return nil })
	}
	st := &stream{service: New(chain, nil, Signing{}), account: chain.Limits.Of(t.Context()), ctx: t.Context()}
	acquire := &pb.Operation{Call: &pb.Operation_Acquire{Acquire: &pb.AcquireCall{Nonce: 1, Resources: []string{"a"}}}}
	for range rate {
		done, err := st.admit(acquire)
		require.NoError(t, err)
		done()
	}
	for name, op := range map[string]*pb.Operation{
		"acquire": acquire,
		"open":    {Call: &pb.Operation_Open{Open: &pb.OpenCall{}}},
	} {
		_, err := st.admit(op)
		require.ErrorIs(t, err, engine.ErrLimit, name)
	}
	require.NoError(t, connect())
	keep := map[string]*pb.Operation{
		"attach":  {Call: &pb.Operation_Attach{Attach: &pb.AttachCall{}}},
		"renewal": {Call: &pb.Operation_Renew{Renew: &pb.RenewCall{}}},
		"release": {Call: &pb.Operation_Release{Release: &pb.ReleaseCall{Nonce: 1}}},
		"release in efficiency mode": {Call: &pb.Operation_Release{Release: &pb.ReleaseCall{Nonce: 1,
			Lease: &pb.HeldLease{Nonce: 1}}}},
		"close": {Call: &pb.Operation_Close{Close: &pb.CloseCall{}}},
	}
	for name, op := range keep {
		_, err := st.admit(op)
		require.NoError(t, err, name)
	}
	for range rate - 1 - len(keep) {
		_, err := st.admit(keep["renewal"])
		require.NoError(t, err)
	}
	require.ErrorIs(t, connect(), engine.ErrLimit)
	for name, op := range keep {
		_, err := st.admit(op)
		require.ErrorIs(t, err, engine.ErrLimit, name)
	}
}

// A client that attaches its session to another stream, as after a failover, renews it for its own TTL, although that
// of the session is longer after an extension.
func TestAttachKeepsTheTTLOfTheClient(t *testing.T) {
	t.Parallel()
	s := newTestService(t)
	id := s.openSession(t)
	st := &stream{service: s.Service, ctx: t.Context(), sessions: map[engine.SessionID]*raftstore.Session{}}
	defer st.detach()
	require.NoError(t, st.attachSession(id, &pb.AttachCall{TtlNanos: int64(time.Minute)}, &pb.Answer{}))
	require.Equal(t, time.Minute, st.sessions[id].TTL())
}

// A grant has a line in the audit log even if the stream closes before its answer is sent: the
// lock is held.
func TestGrantOfAClosedStreamIsAudited(t *testing.T) {
	t.Parallel()
	s := newTestService(t)
	file := filepath.Join(t.TempDir(), "audit")
	log, err := audit.Open(audit.Config{Path: file, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(log.Close)
	s.chain.Audit = log
	st := newStream(s.Service, &answeredClient{ctx: context.Background()})
	granted := func(holder string) {
		o := st.newOperation(&pb.Operation{Call: &pb.Operation_Acquire{Acquire: &pb.AcquireCall{Nonce: 1,
			Resources: []string{"a"}, Holder: holder}}})
		o.Done(machine.Result{Token: 7, Mode: engine.Correctness}, nil)
	}
	granted("unsent")
	st.close()
	granted("late")
	for _, holder := range []string{"unsent", "late"} {
		require.Eventually(t, func() bool {
			text, err := os.ReadFile(file)
			return err == nil && strings.Contains(string(text), `"holder":"`+holder+`"`)
		}, 30*time.Second, time.Millisecond, "the grant to the %s caller is not in the audit log", holder)
	}
}
