package server_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/lease/engine"
)

// sessionStream is a client's stream, without the client.
type sessionStream struct {
	t      testing.TB
	id     engine.SessionID
	stream pb.LeaseService_SessionClient
}

func openStream(t testing.TB, address string, id engine.SessionID) *sessionStream {
	t.Helper()
	stream, err := pb.NewLeaseServiceClient(dial(t, address)).Session(patient(t))
	require.NoError(t, err)
	return &sessionStream{t: t, id: id, stream: stream}
}

// do is one operation: its answer, and the code of its error.
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
	_, code := s.do(&pb.Operation{Call: &pb.Operation_Acquire{Acquire: &pb.AcquireCall{Nonce: nonce, Resources: []string{name}}}})
	return code
}

// A session has ended, and its client has not heard of it. Then a copy of the
// request that opened it arrives: on another stream, or late on its own.
func TestALateOpenHidesNoEnd(t *testing.T) {
	s := startOne(t)
	for name, sameStream := range map[string]bool{"on its own stream": true, "on another stream": false} {
		t.Run(name, func(t *testing.T) {
			id := engine.NewSessionID()
			client := openStream(t, s.Address(), id)
			require.Empty(t, client.open())
			require.Empty(t, client.open(), "a copy while it lives is nothing")
			require.Empty(t, client.acquire(1, name))
			_, err := pb.NewLeaseServiceClient(dial(t, s.Address())).CloseSession(patient(t), &pb.CloseSessionRequest{SessionId: id.String()})
			require.NoError(t, err)

			late := client
			if !sameStream {
				late = openStream(t, s.Address(), id)
			}
			code := late.open()
			require.Equal(t, sameStream, code == "expired", code)
			require.Equal(t, "expired", client.renew(), "it is told now")
			require.Equal(t, "expired", client.acquire(2, name+" 2"))
			_, code = client.attach()
			require.Equal(t, "expired", code, "nor does it find it on this stream")

			next := openStream(t, s.Address(), id)
			answer, code := next.attach()
			require.Empty(t, code)
			require.Empty(t, answer.Holds, "on a new one it sees that it holds nothing")
			require.Empty(t, next.renew())
		})
	}
}
