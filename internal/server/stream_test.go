package server_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/lease/engine"
)

// sessionStream is a session stream without a client.
type sessionStream struct {
	t      testing.TB
	id     engine.SessionID
	stream pb.LeaseService_SessionClient
}

func openStream(t testing.TB, address string, id engine.SessionID) *sessionStream {
	t.Helper()
	stream, err := pb.NewLeaseServiceClient(dial(t, address)).Session(testContext(t))
	require.NoError(t, err)
	return &sessionStream{t: t, id: id, stream: stream}
}

// do runs one operation, and returns its answer and the code of its error.
func (s *sessionStream) do(op *pb.Operation) (*pb.Answer, string) {
	s.t.Helper()
	op.Session = s.id[:]
	require.NoError(s.t, s.stream.Send(&pb.SessionRequest{Operations: []*pb.Operation{op}}))
	for {
		message, err := s.stream.Recv()
		require.NoError(s.t, err)
		if len(message.Answers) == 1 {
			return message.Answers[0], message.Answers[0].GetError().GetCode()
		}
	}
}

func (s *sessionStream) open() string {
	_, code := s.do(&pb.Operation{Call: &pb.Operation_Open{Open: &pb.OpenCall{TtlNanos: int64(engine.MaxTTL)}}})
	return code
}

func (s *sessionStream) attach() (*pb.Answer, string) {
	return s.do(&pb.Operation{Call: &pb.Operation_Attach{Attach: &pb.AttachCall{}}})
}

func (s *sessionStream) renew() string {
	_, code := s.do(&pb.Operation{Call: &pb.Operation_Renew{Renew: &pb.RenewCall{}}})
	return code
}

func (s *sessionStream) acquire(nonce uint64, name string) string {
	_, code := s.do(&pb.Operation{Call: &pb.Operation_Acquire{Acquire: &pb.AcquireCall{Nonce: nonce,
		Resources: []string{name}}}})
	return code
}

// A stream serves only sessions that were opened on it, and answers all operations of
// one message.
func TestStream(t *testing.T) {
	t.Parallel()
	const many = 200
	s := openStream(t, startServer(t).Address(), engine.NewSessionID())
	require.Equal(t, "invalid", s.renew(), "the session is not open")
	_, code := s.attach()
	require.Equal(t, "expired", code, "attach never opens a session")
	require.Empty(t, s.open())
	require.Equal(t, "invalid", s.acquire(0, "a"), "nonce 0")

	var operations []*pb.Operation
	for i := range many {
		operations = append(operations, &pb.Operation{Id: uint64(100 + i), Session: s.id[:],
			Call: &pb.Operation_Acquire{Acquire: &pb.AcquireCall{Nonce: uint64(i + 1),
				Resources: []string{fmt.Sprint("lock ", i)}}}})
	}
	require.NoError(t, s.stream.Send(&pb.SessionRequest{Operations: operations}))
	tokens := map[uint64]bool{}
	for len(tokens) < many {
		message, err := s.stream.Recv()
		require.NoError(t, err)
		for _, a := range message.Answers {
			require.Nil(t, a.Error)
			tokens[a.Token] = true
		}
	}
}

// A session has ended, and its client does not know it yet. A late copy of the
// request that opened the session does not hide the end, neither on the same stream
// nor on another.
func TestLateOpenDoesNotHideEnd(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	for name, sameStream := range map[string]bool{"same stream": true, "another stream": false} {
		t.Run(name, func(t *testing.T) {
			id := engine.NewSessionID()
			client := openStream(t, s.Address(), id)
			require.Empty(t, client.open())
			require.Empty(t, client.open(), "the session is open")
			require.Empty(t, client.acquire(1, name))
			_, err := pb.NewLeaseServiceClient(dial(t, s.Address())).CloseSession(testContext(t),
				&pb.CloseSessionRequest{SessionId: id.String()})
			require.NoError(t, err)

			late := client
			if !sameStream {
				late = openStream(t, s.Address(), id)
			}
			code := late.open()
			require.Equal(t, sameStream, code == "expired", code)
			require.Equal(t, "expired", client.renew())
			require.Equal(t, "expired", client.acquire(2, name+" 2"))
			_, code = client.attach()
			require.Equal(t, "expired", code)

			next := openStream(t, s.Address(), id)
			answer, code := next.attach()
			require.Empty(t, code)
			require.Empty(t, answer.Holds, "a new stream shows that the session holds nothing")
			require.Empty(t, next.renew())
		})
	}
}
