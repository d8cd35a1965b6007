package leases

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/internal/clientcore"
	"github.com/leased-project/leased/internal/server/audit"
	"github.com/leased-project/leased/internal/server/calls"
	"github.com/leased-project/leased/internal/server/limits"
	"github.com/leased-project/leased/internal/server/metrics"
	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/internal/wire"
	"github.com/leased-project/leased/lease/engine"
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

func (c *unreadClient) SendMsg(message any) error { return c.Send(message.(*pb.SessionResponse)) }

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
	st := newStream(s.Service, client)
	done := make(chan struct{})
	go func() { st.receive(); st.close(); close(done) }()
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
	for _, n := range client.sizes {
		require.LessOrEqual(t, n, maxAnswers)
	}
}

// A message with more operations than slots is served, even if all of them are refused at once. It does not
// wait for a heartbeat, which would send the answers, too.
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
	st := newStream(s.Service, client)
	require.True(t, st.alive.Stop())
	done := make(chan struct{})
	go func() { st.receive(); st.close(); close(done) }()
	require.Eventually(t, func() bool { return client.answers.Load() == operations }, time.Minute, time.Millisecond)
	cancel()
	testserver.Receive(t, done)
}

// A client that does not read its notices loses its stream.
func TestUnreadNoticesEndTheStream(t *testing.T) {
	t.Parallel()
	s := newTestService(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	log, err := audit.Open(audit.Config{})
	require.NoError(t, err)
	s.chain.Audit = log
	ended, notify := make(chan error, 1), make(chan func(), 1)
	go func() {
		ended <- s.chain.StreamInterceptor(nil, &unreadClient{ctx: ctx, read: make(chan struct{})},
			&grpc.StreamServerInfo{FullMethod: pb.LeaseService_Session_FullMethodName},
			func(_ any, server grpc.ServerStream) error {
				st := newStream(s.Service, &pacedClient{server})
				notify <- func() { st.notify(engine.NewSessionID(), 1, engine.ErrTaken) }
				st.receive() // blocks: the client sends nothing
				st.close()
				return nil
			})
	}()
	one := testserver.Receive(t, notify)
	for range maxNotices {
		one()
	}
	select {
	case err := <-ended:
		require.NoError(t, err, "the stream has ended too early")
	default:
	}
	for range maxAnswers + 1 { // the sender may have taken a message
		one()
	}
	err = testserver.Receive(t, ended)
	require.ErrorIs(t, wire.FromStatus(err), engine.ErrLimit)
	require.ErrorContains(t, err, "unread notices")
}

// pacedClient is the stream that the chain passes to a handler.
type pacedClient struct{ grpc.ServerStream }

func (c *pacedClient) Recv() (*pb.SessionRequest, error) {
	<-c.Context().Done()
	return nil, c.Context().Err()
}

func (c *pacedClient) Send(message *pb.SessionResponse) error { return c.SendMsg(message) }

// An idle stream has no goroutine of its own, and its client still gets heartbeats and notices.
func TestIdleStreamHasNoGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &answeredClient{ctx: t.Context(), messages: make(chan *pb.SessionResponse, 100)}
		chain := &calls.Chain{Limits: limits.NewAccounts(limits.Default(), engine.MonotonicClock()),
			Metrics: metrics.New("", "")}
		st := newStream(New(chain, nil, Signing{}), server)
		time.Sleep(10*clientcore.HeartbeatInterval + time.Millisecond)
		synctest.Wait()
		require.Len(t, server.messages, 10, "heartbeats")
		st.notify(engine.NewSessionID(), 1, engine.ErrTaken)
		synctest.Wait()
		require.Len(t, server.messages, 11)
		stacks := make([]byte, 1<<20)
		require.NotContains(t, string(stacks[:runtime.Stack(stacks, true)]), "(*stream).send")
		st.close()
		time.Sleep(10 * clientcore.HeartbeatInterval)
		require.Len(t, server.messages, 11, "a closed stream sends nothing")
	})
}

// A notice that arrives while another message is being sent is sent next, not with the next heartbeat.
func TestNoticeWhileSending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &answeredClient{ctx: t.Context(), messages: make(chan *pb.SessionResponse)} // blocks until it is read
		chain := &calls.Chain{Limits: limits.NewAccounts(limits.Default(), engine.MonotonicClock()),
			Metrics: metrics.New("", "")}
		st := newStream(New(chain, nil, Signing{}), server)
		began := time.Now()
		for range 3 {
			st.notify(engine.NewSessionID(), 1, engine.ErrTaken)
			synctest.Wait()
		}
		require.Len(t, (<-server.messages).Notices, 1)
		require.Len(t, (<-server.messages).Notices, 2)
		require.Zero(t, time.Since(began))
		st.close()
	})
}

// answeredClient is a session stream whose client reads everything.
type answeredClient struct {
	grpc.ServerStream
	ctx      context.Context
	messages chan *pb.SessionResponse
}

func (c *answeredClient) Context() context.Context { return c.ctx }

func (c *answeredClient) Recv() (*pb.SessionRequest, error) { panic("nothing is received") }

func (c *answeredClient) Send(message *pb.SessionResponse) error {
	select {
	case c.messages <- message:
		return nil
	case <-c.ctx.Done():
		return c.ctx.Err()
	}
}
