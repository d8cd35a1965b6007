package connectgate_test

import (
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate/connectgate"
)

const (
	waitFor = 10 * time.Second
	tick    = time.Millisecond
	// grace is how long an old holder gives a newer one the chance to overtake
	// it. No outcome depends on it: a longer one catches a missing turn more
	// surely, that is all.
	grace = 100 * time.Millisecond
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
	require.NoError(t, to.Send(message(resource, value)))
	_, err := to.Receive()
	return err
}

// The old holder pauses between two messages of one stream. It must not hold up
// the new one, and its next message must not get through.
func TestStreamOfAFormerHolderIsRefused(t *testing.T) {
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
			require.Equal(t, "new", s.store.get("r"))
		})
	}
}

// What a handler does after the last message is gated too, and a handler that
// takes no notice of the refusal cannot make a success of it.
func TestEndOfStreamIsGated(t *testing.T) {
	s := serve(t, fencing.Rule{})
	old := s.client(procCollect).CallClientStream(connectgate.WithToken(t.Context(), 1))
	require.NoError(t, old.Send(message("r", "old")))
	require.Eventually(t, func() bool { return s.Counts().Admitted == 1 }, waitFor, tick)
	require.NoError(t, s.Write(t.Context(), "r", 2, "new"))
	_, err := old.CloseAndReceive()
	require.ErrorIs(t, connectgate.Refusal(err), fencing.ErrStale)
	require.Equal(t, "new", s.store.get("r"))

	fresh := s.client(procCollect).CallClientStream(connectgate.WithToken(t.Context(), 2))
	require.NoError(t, fresh.Send(message("r", "newer")))
	_, err = fresh.CloseAndReceive()
	require.NoError(t, err)
	require.Equal(t, "newer", s.store.get("r"))
}

func TestStreamKeepsToItsResource(t *testing.T) {
	s := serve(t, fencing.Rule{})
	opened := open(t, s, 1)
	require.NoError(t, send(t, opened, "r", "x"))
	err := send(t, opened, "another", "x")
	require.Equal(t, connect.CodeInvalidArgument, connect.CodeOf(err))
	require.Empty(t, s.store.get("another"))
}

// While the handler works on a message of the old holder, a newer call waits.
func TestNewerCallWaitsForTheMessageInFlight(t *testing.T) {
	for _, procedure := range []string{procPut, procAppend} {
		t.Run(procedure, func(t *testing.T) {
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
				if procedure == procPut {
					oldDone <- s.Write(t.Context(), "r", 1, "old")
					return
				}
				oldDone <- send(t, open(t, s, 1), "r", "old")
			}()
			<-inside
			require.NoError(t, s.Write(t.Context(), "r", 2, "new"))
			require.NoError(t, <-oldDone)
			require.Equal(t, "new", s.store.get("r"), "the older write landed after the newer one")
		})
	}
}
