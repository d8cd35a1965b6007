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
	"github.com/leased-project/leased/internal/servicetest"
	"github.com/leased-project/leased/storagegate/grpcgate"
)

const (
	timeout = time.Minute
	tick    = time.Millisecond
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
	require.NoError(t, stream.SendMsg(servicetest.Message(resource, value)))
	return stream.RecvMsg(new(wrapperspb.BytesValue))
}

// An older holder is paused between two messages of a stream. It must not block
// the newer holder, and its next message must be refused.
func TestStreamOfAnOlderHolderIsRefused(t *testing.T) {
	s := serve(t, fencing.Rule{})
	old := open(t, s, "Append", 1)
	require.NoError(t, send(t, old, "r", "old 1"))
	require.NoError(t, send(t, old, "r", "old 2"))
	require.NoError(t, s.Write(t.Context(), "r", 2, "new"))
	err := send(t, old, "r", "old 3")
	require.Equal(t, codes.FailedPrecondition, status.Code(err))
	require.Equal(t, &fencing.StaleError{Resource: "r", Token: 1, Mark: 2}, grpcgate.Refusal(err))
	require.Equal(t, "new", s.store.Get("r"))
}

// The end of a stream is gated too. A call whose handler ignores the refusal must
// fail nevertheless.
func TestEndOfStreamIsGated(t *testing.T) {
	s := serve(t, fencing.Rule{})
	old := open(t, s, "Collect", 1)
	require.NoError(t, old.SendMsg(servicetest.Message("r", "old")))
	require.Eventually(t, func() bool { return s.Counts().Admitted == 1 }, timeout, tick)
	require.NoError(t, s.Write(t.Context(), "r", 2, "new"))
	require.NoError(t, old.CloseSend())
	err := old.RecvMsg(new(wrapperspb.BytesValue))
	for err == nil { // the response of the handler comes before the status
		err = old.RecvMsg(new(wrapperspb.BytesValue))
	}
	require.ErrorIs(t, grpcgate.Refusal(err), fencing.ErrStale)
	require.Equal(t, "new", s.store.Get("r"))

	fresh := open(t, s, "Collect", 2)
	require.NoError(t, fresh.SendMsg(servicetest.Message("r", "newer")))
	require.NoError(t, fresh.CloseSend())
	require.NoError(t, fresh.RecvMsg(new(wrapperspb.BytesValue)))
	require.Equal(t, "newer", s.store.Get("r"))
}

func TestStreamKeepsToItsResource(t *testing.T) {
	s := serve(t, fencing.Rule{})
	stream := open(t, s, "Append", 1)
	require.NoError(t, send(t, stream, "r", "x"))
	err := send(t, stream, "another", "x")
	require.Equal(t, codes.InvalidArgument, status.Code(err))
	require.ErrorContains(t, err, "one stream for each resource")
	require.Empty(t, s.store.Get("another"))
}

// A newer call waits while the handler processes a message of an older holder.
func TestNewerCallWaitsForTheRunningHandler(t *testing.T) {
	for _, kind := range []string{"Put", "Append"} {
		t.Run(kind, func(t *testing.T) {
			s := serve(t, fencing.Rule{})
			old := func() error {
				if kind == "Put" {
					return s.Write(t.Context(), "r", 1, "old")
				}
				return send(t, open(t, s, kind, 1), "r", "old")
			}
			servicetest.RequireNewerWaits(t, s.store, old, func() error { return s.Write(t.Context(), "r", 2, "new") })
		})
	}
}
