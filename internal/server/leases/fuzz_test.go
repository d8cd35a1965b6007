package leases

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/lease/engine"
)

// FuzzOperation checks that every operation of a session stream has one answer, never
// a panic or an internal error, and that none grants a lock that another session holds.
func FuzzOperation(f *testing.F) {
	s := newTestService(f)
	other := s.openSession(f)
	held, err := s.acquire(other, "held", 1)
	require.NoError(f, err)
	id := engine.NewSessionID()
	for _, op := range []*pb.Operation{
		{Id: 1, Session: id[:], Call: &pb.Operation_Open{Open: &pb.OpenCall{TtlNanos: int64(sessionTTL)}}},
		{Id: 2, Session: id[:], Call: &pb.Operation_Attach{Attach: &pb.AttachCall{}}},
		{Id: 3, Session: id[:], Call: &pb.Operation_Acquire{Acquire: &pb.AcquireCall{Nonce: 1, Resources: []string{"held"}}}},
		{Id: 4, Session: id[:], Call: &pb.Operation_Acquire{Acquire: &pb.AcquireCall{Nonce: 2, Resources: []string{"a"},
			TtlNanos: int64(time.Second)}}},
		{Id: 5, Session: id[:], Call: &pb.Operation_Release{Release: &pb.ReleaseCall{Nonce: 1}}},
		{Id: 6, Session: id[:], Call: &pb.Operation_Release{Release: &pb.ReleaseCall{Nonce: 1,
			Lease: &pb.HeldLease{Resources: []string{"a"}}}}},
		{Id: 7, Session: id[:], Call: &pb.Operation_Renew{Renew: &pb.RenewCall{Leases: []*pb.HeldLease{{Nonce: 1}}}}},
		{Id: 8, Session: id[:3], Call: &pb.Operation_Close{Close: &pb.CloseCall{}}},
		{Id: 9},
	} {
		data, err := proto.Marshal(&pb.SessionRequest{Operations: []*pb.Operation{op}})
		require.NoError(f, err)
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		message := &pb.SessionRequest{}
		if proto.Unmarshal(data, message) != nil {
			return
		}
		st := s.newStream(t)
		for _, op := range message.Operations {
			if call := op.GetAcquire(); call != nil {
				call.Wait = false // a waiter has no answer yet
			}
			if string(op.Session) == string(other[:]) {
				return // the fuzzer has found the other session
			}
			answer := answerOf(st, op)
			require.Equal(t, op.Id, answer.Id)
			require.NotEqual(t, "internal", answer.GetError().GetCode(), "%v", answer.GetError())
		}
		status, err := s.Inspect(t.Context(), &pb.InspectRequest{Resource: "held"})
		require.NoError(t, err)
		require.Len(t, status.Lock.Holders, 1)
		require.Equal(t, held.Token, status.Lock.Holders[0].Token)
	})
}

// newStream returns the stream of a client that reads everything.
func (s testService) newStream(t testing.TB) *stream {
	st := newStream(s.Service, &answeredClient{ctx: t.Context(), messages: make(chan *pb.SessionResponse, 1)})
	t.Cleanup(func() {
		st.cancel()
		st.detach()
		st.close()
	})
	return st
}

// answerOf runs an operation and returns its answer.
func answerOf(st *stream, op *pb.Operation) *pb.Answer {
	st.slots <- struct{}{}
	o := st.newOperation(op)
	if !o.begin() {
		o.waiter = st.addWaiter(op)
		o.run()
	}
	st.flush()
	return sentAnswer(st)
}

// sentAnswer returns the next answer sent to the client.
func sentAnswer(st *stream) *pb.Answer {
	for message := range st.server.(*answeredClient).messages {
		if len(message.Answers) > 0 { // it is no heartbeat
			return message.Answers[0]
		}
	}
	return nil
}
