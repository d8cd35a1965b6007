package httpapi

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/internal/server/calls"
	"github.com/leased-project/leased/internal/server/routing"
	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/internal/wire"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore"
)

// newFollower returns the Handler of a member that knows the API address of another one, which leads.
func newFollower(t *testing.T) *Handler {
	t.Helper()
	nodes := map[string]*raftstore.Node{}
	for _, id := range []string{"leader", "follower"} {
		node, err := raftstore.Open(raftstore.Config{ID: id, Storage: raftstore.MemoryStorage(), Address: "127.0.0.1:0",
			HeartbeatTimeout: 3 * time.Second, Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, node.Close()) })
		nodes[id] = node
	}
	ctx := testserver.Context(t)
	require.NoError(t, nodes["leader"].Bootstrap())
	testserver.Eventually(t, "the first member leads", nodes["leader"].Leads)
	require.NoError(t, nodes["follower"].Join(ctx, nodes["leader"]))
	require.NoError(t, nodes["leader"].SetMemberAPI(ctx, "leader", "127.0.0.1:1"))
	router := &routing.Router{Node: nodes["follower"], Address: "127.0.0.1:2", Clock: engine.SystemClock(),
		PeerTLS: func() *tls.Config { return nil }, Secret: func() string { return "" }}
	testserver.Eventually(t, "the follower knows the leader", func() bool { return router.LeaderAddress() != "" })
	return &Handler{Config: Config{Chain: &calls.Chain{Router: router}}}
}

// A follower forwards a call that only the leader can serve without running it. If the leader cannot be reached, it
// runs the call once: an invalid request is refused at once.
func TestOnlyTheLeaderRunsCallsInSessions(t *testing.T) {
	t.Parallel()
	h := newFollower(t)
	invalid := fmt.Errorf("%w: nonce", engine.ErrInvalid)
	const former = "127.0.0.1:3" // the leader when the call arrived
	for name, c := range map[string]struct {
		leaderOnly, sent bool  // sent by another member
		once             bool  // its body cannot be read again
		here             error // of the call on this member
		answers          []error
		runs, forwards   int
		want             error
	}{
		"forwarded":     {leaderOnly: true, answers: []error{nil}, forwards: 1, want: wire.ErrNotLeader},
		"any member":    {here: wire.ErrNotLeader, answers: []error{nil}, runs: 1, forwards: 1, want: wire.ErrNotLeader},
		"served here":   {runs: 1},
		"from a member": {leaderOnly: true, sent: true, here: wire.ErrNotLeader, runs: 1, want: wire.ErrNotLeader},
		"lost":          {leaderOnly: true, answers: []error{engine.ErrUncertain}, forwards: 1, want: engine.ErrUncertain},
		"invalid, not reached": {leaderOnly: true, here: invalid, answers: []error{routing.ErrNotReached}, runs: 1,
			forwards: 1, want: engine.ErrInvalid},
		"not reached": {leaderOnly: true, here: wire.ErrNotLeader,
			answers: []error{routing.ErrNotReached, wire.ErrNotLeader, nil}, runs: 1, forwards: 3, want: wire.ErrNotLeader},
		"file, not reached": {once: true, here: wire.ErrNotLeader, answers: []error{routing.ErrNotReached}, runs: 1,
			forwards: 1, want: routing.ErrNotReached},
	} {
		t.Run(name, func(t *testing.T) {
			x := &exchange{Handler: h, r: httptest.NewRequest("POST", "/v1/acquire", nil), w: httptest.NewRecorder()}
			x.w.Header().Set(LeaderHeader, former)
			if c.sent {
				x.r.Header.Set(forwardedHeader, "n9")
			}
			runs, forwards := 0, 0
			err := x.orForward(testserver.Context(t), &forwardable{leaderOnly: c.leaderOnly,
				mayForward: func() bool { return !c.once || forwards == 0 },
				run:        func() error { runs++; return c.here },
				forward: func(leader string) error {
					require.Equal(t, "127.0.0.1:1", leader)
					forwards++
					return c.answers[forwards-1]
				}})
			require.ErrorIs(t, err, c.want)
			require.Equal(t, []int{c.runs, c.forwards}, []int{runs, forwards})
			named := former
			if forwards > 0 {
				named = "127.0.0.1:1"
			}
			require.Equal(t, named, x.w.Header().Get(LeaderHeader), "a client follows this header")
			require.Equal(t, c.forwards > 0 && c.answers[len(c.answers)-1] == nil, x.forwarded)
		})
	}
}

// A request that streams, such as a watch, was not sent to a leader that cannot be reached: the next one gets it.
func TestStreamIsNotSentToALeaderThatIsNotReached(t *testing.T) {
	t.Parallel()
	h := newFollower(t)
	h.Forwarder = routing.NewForwarder(h.Chain.Router, false)
	h.transport = &http.Transport{DialContext: h.Forwarder.Dial}
	request := httptest.NewRequest("POST", "/v1/watch", strings.NewReader(`{}`)).WithContext(testserver.Context(t))
	err := h.forward(httptest.NewRecorder(), request, testserver.FreeAddr(t))
	require.ErrorIs(t, err, routing.ErrNotReached)
	require.ErrorIs(t, err, engine.ErrUnavailable)
	require.NotErrorIs(t, err, engine.ErrUncertain)
}

// A watch that a member has forwarded ends with an error line if the member ends it. A caller that is gone gets none,
// and a file ends with the connection: it must not seem complete.
func TestForwardedWatchEndsWithAnError(t *testing.T) {
	t.Parallel()
	removed := fmt.Errorf("%w: user a was removed", engine.ErrUncertain)
	for name, c := range map[string]struct {
		cause error
		kind  string
		code  string // of the last line, empty if the connection ends
	}{
		"another leader":  {routing.ErrLeaderChanged, ndjson, "unavailable"},
		"user is removed": {removed, ndjson, "uncertain"},
		"file":            {removed, "application/octet-stream", ""},
		"caller is gone":  {context.Canceled, ndjson, ""},
		"leader is gone":  {nil, ndjson, ""},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			if c.cause != nil {
				cancel(c.cause)
			}
			w := httptest.NewRecorder()
			w.Header().Set("Content-Type", c.kind)
			if c.code == "" {
				require.PanicsWithValue(t, http.ErrAbortHandler, func() { endForwarded(ctx, w, http.ErrAbortHandler) })
				require.Empty(t, w.Body)
				return
			}
			endForwarded(ctx, w, http.ErrAbortHandler)
			require.Contains(t, w.Body.String(), `"code":"`+c.code+`"`)
		})
	}
}

// The answers of the leader have the types of the methods. A request that another member may serve has none.
func TestLeaderAnswer(t *testing.T) {
	t.Parallel()
	byRequest := map[protoreflect.FullName]protoreflect.FullName{}
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(
		protoreflect.FullName(pb.LeaseService_ServiceDesc.ServiceName))
	require.NoError(t, err)
	methods := d.(protoreflect.ServiceDescriptor).Methods()
	for i := range methods.Len() {
		byRequest[methods.Get(i).Input().FullName()] = methods.Get(i).Output().FullName()
	}
	for _, request := range []proto.Message{&pb.OpenSessionRequest{}, &pb.CloseSessionRequest{},
		&pb.AcquireRequest{SessionId: "s"}, &pb.RenewRequest{SessionId: "s"}, &pb.ReleaseRequest{SessionId: "s"}} {
		require.Equal(t, byRequest[proto.MessageName(request)], proto.MessageName(leaderAnswer(request)))
	}
	for _, request := range []proto.Message{&pb.AcquireRequest{Resource: "a"}, &pb.InspectRequest{},
		&pb.RenewRequest{SessionId: "s", Resource: "a", Token: 1}, &pb.RenewRequest{Resource: "a", Token: 1},
		&pb.ReleaseRequest{SessionId: "s", Resource: "a", Token: 1}, &pb.ReleaseRequest{Resource: "a", Token: 1}} {
		require.Nil(t, leaderAnswer(request), "%T %v", request, request)
	}
}
