package grpcgate_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate/grpcgate"
)

const (
	waitFor = 10 * time.Second
	tick    = time.Millisecond
	// grace is how long an old holder gives a newer one the chance to overtake
	// it. No outcome depends on it: a longer one catches a missing turn more
	// surely, that is all.
	grace = 100 * time.Millisecond
)

func open(t *testing.T, s *subject, method string, token fencing.Token) grpc.ClientStream {
	t.Helper()
	stream, err := s.conn.NewStream(grpcgate.WithToken(t.Context(), token),
		&grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, "/test.Store/"+method)
	require.NoError(t, err)
	return stream
}

func send(t *testing.T, stream grpc.ClientStream, resource fencing.Resource, value string) error {
	t.Helper()
	require.NoError(t, stream.SendMsg(message(resource, value)))
	return stream.RecvMsg(new(wrapperspb.BytesValue))
}

// The old holder pauses between two messages of one stream. It must not hold up
// the new one, and its next message must not get through.
func TestStreamOfAFormerHolderIsRefused(t *testing.T) {
	s := serve(t, fencing.Rule{})
	old := open(t, s, "Append", 1)
	require.NoError(t, send(t, old, "r", "old 1"))
	require.NoError(t, send(t, old, "r", "old 2"))
	require.NoError(t, s.Write(t.Context(), "r", 2, "new"))
	err := send(t, old, "r", "old 3")
	require.Equal(t, codes.FailedPrecondition, status.Code(err))
	require.Equal(t, &fencing.StaleError{Resource: "r", Token: 1, Mark: 2}, grpcgate.Refusal(err))
	require.Equal(t, "new", s.store.get("r"))
}

// What a handler does after the last message is gated too, and a handler that
// takes no notice of the refusal cannot make a success of it.
func TestEndOfStreamIsGated(t *testing.T) {
	s := serve(t, fencing.Rule{})
	old := open(t, s, "Collect", 1)
	require.NoError(t, old.SendMsg(message("r", "old")))
	require.Eventually(t, func() bool { return s.Counts().Admitted == 1 }, waitFor, tick)
	require.NoError(t, s.Write(t.Context(), "r", 2, "new"))
	require.NoError(t, old.CloseSend())
	err := old.RecvMsg(new(wrapperspb.BytesValue))
	for err == nil { // the handler's answer, before the status
		err = old.RecvMsg(new(wrapperspb.BytesValue))
	}
	require.ErrorIs(t, grpcgate.Refusal(err), fencing.ErrStale)
	require.Equal(t, "new", s.store.get("r"))

	fresh := open(t, s, "Collect", 2)
	require.NoError(t, fresh.SendMsg(message("r", "newer")))
	require.NoError(t, fresh.CloseSend())
	require.NoError(t, fresh.RecvMsg(new(wrapperspb.BytesValue)))
	require.Equal(t, "newer", s.store.get("r"))
}

func TestStreamKeepsToItsResource(t *testing.T) {
	s := serve(t, fencing.Rule{})
	stream := open(t, s, "Append", 1)
	require.NoError(t, send(t, stream, "r", "x"))
	err := send(t, stream, "another", "x")
	require.Equal(t, codes.InvalidArgument, status.Code(err))
	require.ErrorContains(t, err, "one stream for each resource")
	require.Empty(t, s.store.get("another"))
}

// While the handler works on a message of the old holder, a newer call waits.
func TestNewerCallWaitsForTheMessageInFlight(t *testing.T) {
	for _, kind := range []string{"Put", "Append"} {
		t.Run(kind, func(t *testing.T) {
			s := serve(t, fencing.Rule{})
			inside, overtaken := make(chan struct{}), make(chan struct{})
			s.store.before = func(value string) {
				if value == "new" {
					close(overtaken)
					return
				}
				close(inside)
				select {
				case <-overtaken:
				case <-time.After(grace):
				}
			}
			oldDone := make(chan error, 1)
			go func() {
				if kind == "Put" {
					oldDone <- s.Write(t.Context(), "r", 1, "old")
					return
				}
				oldDone <- send(t, open(t, s, kind, 1), "r", "old")
			}()
			<-inside
			require.NoError(t, s.Write(t.Context(), "r", 2, "new"))
			require.NoError(t, <-oldDone)
			require.Equal(t, "new", s.store.get("r"), "the older write landed after the newer one")
		})
	}
}
