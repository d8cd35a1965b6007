package server_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/lease/leasetest"
	"github.com/leased-project/leased/lease/remote"
)

// slowWay lets time pass on a clock while calls of a client are on their way.
type slowWay struct {
	*leasetest.StoppedClock
	opens, acquires, renewals atomic.Int64 // how long the next one takes
}

// slowClient is a client with a slow way to the service.
func slowClient(t testing.TB, address string) (*remote.Backend, *slowWay) {
	t.Helper()
	w := &slowWay{StoppedClock: leasetest.NewStoppedClock()}
	through := func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, stream grpc.Streamer, options ...grpc.CallOption) (grpc.ClientStream, error) {
		s, err := stream(ctx, desc, cc, method, options...)
		if err != nil {
			return nil, err
		}
		return slowStream{s, w}, nil
	}
	return client(t, []string{address}, remote.WithTimeout(time.Minute),
		remote.WithDialOptions(grpc.WithChainStreamInterceptor(through))), w
}

type slowStream struct {
	grpc.ClientStream
	way *slowWay
}

func (s slowStream) SendMsg(message any) error {
	if r, ok := message.(*pb.SessionRequest); ok {
		for _, op := range r.Operations {
			var takes *atomic.Int64
			switch op.Call.(type) {
			case *pb.Operation_Open:
				takes = &s.way.opens
			case *pb.Operation_Acquire:
				takes = &s.way.acquires
			case *pb.Operation_Renew:
				takes = &s.way.renewals
			default:
				continue
			}
			s.way.Move(time.Duration(takes.Swap(0)))
		}
	}
	return s.ClientStream.SendMsg(message)
}

// TestTheTimeOfASessionCountsFromTheQuestion: the service may have begun to count
// as soon as it was asked, however long its answer takes.
func TestTheTimeOfASessionCountsFromTheQuestion(t *testing.T) {
	b, way := slowClient(t, startOne(t).Address())
	opened := way.Now()
	way.opens.Store(int64(time.Second))
	s, err := b.Open(patient(t), engine.SessionConfig{ID: engine.NewSessionID(), TTL: time.Hour, Clock: way})
	require.NoError(t, err)
	way.acquires.Store(int64(time.Second))
	grant, err := s.Acquire(patient(t), engine.Request{Nonce: 1, Resources: []fencing.Resource{"a"}})
	require.NoError(t, err)
	require.Equal(t, opened, grant.Sent, "it lasts as long as its session")
	require.Equal(t, 2*time.Second, way.Now().Since(opened))

	renewed := way.Now()
	way.renewals.Store(int64(time.Second))
	_, err = s.Renew(patient(t))
	require.NoError(t, err)
	require.Equal(t, time.Second, way.Now().Since(renewed))
	grant, err = s.Acquire(patient(t), engine.Request{Nonce: 2, Resources: []fencing.Resource{"b"}})
	require.NoError(t, err)
	require.Equal(t, renewed, grant.Sent)
}

// TestAClientCountsSuspendUnlessToldOtherwise: who chooses no clock has the one that
// goes on in suspend.
func TestAClientCountsSuspendUnlessToldOtherwise(t *testing.T) {
	s, err := client(t, []string{startOne(t).Address()}).Open(patient(t), engine.SessionConfig{ID: engine.NewSessionID(), TTL: time.Hour})
	require.NoError(t, err)
	grant, err := s.Acquire(patient(t), engine.Request{Nonce: 1, Resources: []fencing.Resource{"a"}})
	require.NoError(t, err)
	readsBoth := func(i engine.Instant) bool { return i.Since(engine.NewInstant(i.Time(), 0)) > 0 } // not every system has both
	require.Equal(t, readsBoth(engine.SystemClock().Now()), readsBoth(grant.Sent))
}
