package leases

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/internal/server/limits"
	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore"
)

// unreadClient is a session stream that sends operations, and reads nothing before read
// is closed.
type unreadClient struct {
	grpc.ServerStream
	ctx      context.Context
	message  *pb.SessionRequest
	messages int
	read     chan struct{}
	sizes    []int // answers of the messages that were read
	answers  atomic.Int64
}

func (c *unreadClient) Context() context.Context { return c.ctx }

func (c *unreadClient) Recv() (*pb.SessionRequest, error) {
	if c.messages == 0 {
		<-c.ctx.Done()
		return nil, c.ctx.Err()
	}
	c.messages--
	return c.message, nil
}

func (c *unreadClient) Send(message *pb.SessionResponse) error {
	select {
	case <-c.read:
		c.sizes = append(c.sizes, len(message.Answers))
		c.answers.Add(int64(len(message.Answers)))
		return nil
	case <-c.ctx.Done():
		return c.ctx.Err()
	}
}

// An operation keeps its slot until its answer is sent, so that a client that does not
// read is not read from.
func TestUnreadAnswersKeepTheirSlots(t *testing.T) {
	t.Parallel()
	const operations = 1000
	s := newTestService(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	client := &unreadClient{ctx: ctx, message: &pb.SessionRequest{}, messages: 2 * maxOperations / operations,
		read: make(chan struct{})}
	for i := range operations { // none of them is valid
		client.message.Operations = append(client.message.Operations, &pb.Operation{Id: uint64(i)})
	}
	st := &stream{service: s.Service, account: s.limits.Of(ctx), sessions: map[engine.SessionID]*raftstore.Session{},
		waiters: map[attempt]*redisWaiter{},
		wake:    make(chan struct{}, 1), slots: make(chan struct{}, maxOperations)}
	st.ctx, st.cancel = context.WithCancelCause(ctx)
	done := make(chan struct{}, 2)
	go func() { st.send(client); done <- struct{}{} }()
	go func() { st.receive(client); done <- struct{}{} }()
	queued := func() int {
		st.mu.Lock()
		defer st.mu.Unlock()
		return len(st.queue.ended)
	}
	require.Eventually(t, func() bool {
		return len(st.slots) == maxOperations && queued() >= maxOperations-maxAnswers
	}, time.Minute, time.Millisecond)
	require.LessOrEqual(t, queued(), maxOperations)
	close(client.read)
	require.Eventually(t, func() bool {
		return client.answers.Load() == 2*maxOperations/operations*operations
	}, time.Minute, time.Millisecond)
	require.Eventually(t, func() bool { return len(st.slots) == 0 && queued() == 0 }, time.Minute, time.Millisecond)
	cancel()
	testserver.Receive(t, done)
	testserver.Receive(t, done)
	for _, n := range client.sizes {
		require.LessOrEqual(t, n, maxAnswers)
	}
}

// A message with more operations than slots is served, even if all of them are refused at once.
func TestRefusedOperationsFreeTheirSlots(t *testing.T) {
	t.Parallel()
	s := newTestService(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	client := &unreadClient{ctx: ctx, message: &pb.SessionRequest{}, messages: 1, read: make(chan struct{})}
	close(client.read)
	const operations = maxOperations + 10
	for i := range operations {
		client.message.Operations = append(client.message.Operations,
			&pb.Operation{Id: uint64(i), Call: &pb.Operation_Acquire{Acquire: &pb.AcquireCall{}}})
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Session(client) }()
	require.Eventually(t, func() bool { return client.answers.Load() == operations }, time.Minute, time.Millisecond)
	cancel()
	require.NoError(t, testserver.Receive(t, ended))
}

// A client that does not read its notices loses its stream.
func TestUnreadNoticesEndTheStream(t *testing.T) {
	t.Parallel()
	s := newTestService(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	client := &unreadClient{ctx: ctx, read: make(chan struct{})}
	ended := make(chan error, 1)
	id := s.openSession(t)
	go func() { ended <- s.Session(client) }()
	st := &stream{service: s.Service, wake: make(chan struct{}, 1)}
	st.ctx, st.cancel = context.WithCancelCause(ctx)
	for range maxNotices {
		st.notify(id, 1, engine.ErrTaken)
	}
	require.NoError(t, st.ctx.Err())
	st.notify(id, 1, engine.ErrTaken)
	require.ErrorIs(t, context.Cause(st.ctx), limits.ErrSlow)
	require.Len(t, st.queue.notices, maxNotices)
	cancel()
	require.NoError(t, testserver.Receive(t, ended))
}
