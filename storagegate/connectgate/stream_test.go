package connectgate_test

import (
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/servicetest"
	"github.com/leased-project/leased/storagegate/connectgate"
)

const (
	timeout = time.Minute
	tick    = time.Millisecond
)

type stream = *connect.BidiStreamForClient[msg, msg]

func open(t *testing.T, s *subject, token fencing.Token) stream {
	t.Helper()
	opened := s.client(procAppend).CallBidiStream(connectgate.WithToken(t.Context(), token))
	t.Cleanup(func() {
		opened.CloseRequest()
		opened.CloseResponse()
	})
	return opened
}

func send(t *testing.T, to stream, resource fencing.Resource, value string) error {
	t.Helper()
	require.NoError(t, to.Send(servicetest.Message(resource, value)))
	_, err := to.Receive()
	return err
}

// An older holder is paused between two messages of a stream. It must not block
// the newer holder, and its next message must be refused.
func TestStreamOfAnOlderHolderIsRefused(t *testing.T) {
	for name, options := range protocols {
		t.Run(name, func(t *testing.T) {
			s := serve(t, fencing.Rule{}, options...)
			old := open(t, s, 1)
			require.NoError(t, send(t, old, "r", "old 1"))
			require.NoError(t, send(t, old, "r", "old 2"))
			require.NoError(t, s.Write(t.Context(), "r", 2, "new"))
			err := send(t, old, "r", "old 3")
			require.Equal(t, connect.CodeFailedPrecondition, connect.CodeOf(err))
			require.Equal(t, &fencing.StaleError{Resource: "r", Token: 1, Mark: 2}, connectgate.Refusal(err))
			require.Equal(t, "new", s.store.Get("r"))
		})
	}
}

// The end of a stream is gated too. A call whose handler ignores the refusal must
// fail nevertheless.
func TestEndOfStreamIsGated(t *testing.T) {
	s := serve(t, fencing.Rule{})
	old := s.client(procCollect).CallClientStream(connectgate.WithToken(t.Context(), 1))
	require.NoError(t, old.Send(servicetest.Message("r", "old")))
	require.Eventually(t, func() bool { return s.Counts().Admitted == 1 }, timeout, tick)
	require.NoError(t, s.Write(t.Context(), "r", 2, "new"))
	_, err := old.CloseAndReceive()
	require.ErrorIs(t, connectgate.Refusal(err), fencing.ErrStale)
	require.Equal(t, "new", s.store.Get("r"))

	fresh := s.client(procCollect).CallClientStream(connectgate.WithToken(t.Context(), 2))
	require.NoError(t, fresh.Send(servicetest.Message("r", "newer")))
	_, err = fresh.CloseAndReceive()
	require.NoError(t, err)
	require.Equal(t, "newer", s.store.Get("r"))
}

func TestStreamKeepsToItsResource(t *testing.T) {
	s := serve(t, fencing.Rule{})
	opened := open(t, s, 1)
	require.NoError(t, send(t, opened, "r", "x"))
	err := send(t, opened, "another", "x")
	require.Equal(t, connect.CodeInvalidArgument, connect.CodeOf(err))
	require.Empty(t, s.store.Get("another"))
}

// A newer call waits while the handler processes a message of an older holder.
func TestNewerCallWaitsForTheRunningHandler(t *testing.T) {
	for _, procedure := range []string{procPut, procAppend} {
		t.Run(procedure, func(t *testing.T) {
			s := serve(t, fencing.Rule{})
			old := func() error {
				if procedure == procPut {
					return s.Write(t.Context(), "r", 1, "old")
				}
				return send(t, open(t, s, 1), "r", "old")
			}
			servicetest.RequireNewerWaits(t, s.store, old, func() error { return s.Write(t.Context(), "r", 2, "new") })
		})
	}
}
