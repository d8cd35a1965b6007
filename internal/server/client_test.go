package server_test

import (
	"context"
	"errors"
	"io"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"weak"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/remote"
	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/lease/leasetest"
)

// proxy forwards connections to an address until it is cut.
type proxy struct {
	listener net.Listener
	to       string

	mu    sync.Mutex
	isCut bool
	conns []net.Conn
}

func newProxy(t testing.TB, to string) *proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &proxy{listener: listener, to: to}
	go p.run()
	t.Cleanup(func() {
		listener.Close()
		p.cut(true)
	})
	return p
}

func (p *proxy) run() {
	for {
		near, err := p.listener.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", p.to)
		if err != nil {
			near.Close()
			continue
		}
		p.mu.Lock()
		if p.isCut {
			near.Close()
			far.Close()
		}
		p.conns = append(p.conns, near, far)
		p.mu.Unlock()
		go func() { _, _ = io.Copy(near, far); near.Close() }()
		go func() { _, _ = io.Copy(far, near); far.Close() }()
	}
}

// cut closes all connections, and rejects new ones until it is called with false.
func (p *proxy) cut(cut bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.isCut = cut
	for _, c := range p.conns {
		c.Close()
	}
	p.conns = nil
}

// A client that reconnects learns which leases it has lost, and keeps the others.
func TestLossWhileDisconnected(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	proxy := newProxy(t, s.Address())
	away := newClientWith(t, []string{proxy.listener.Addr().String()}, remote.Config{Timeout: 5 * time.Second})
	lost := make(chan engine.Nonce, 10)
	session, err := away.Open(testContext(t), engine.SessionConfig{ID: engine.NewSessionID(), TTL: 10 * time.Minute,
		Lost: func(n engine.Nonce, err error) {
			if !errors.Is(err, engine.ErrLost) {
				t.Error(err)
			}
			lost <- n
		}})
	require.NoError(t, err)
	var grants []engine.Grant
	for i, name := range []fencing.Resource{"a", "b"} {
		var grant engine.Grant
		eventually(t, "the lock is granted", func() bool {
			grant, err = session.Acquire(testContext(t), engine.Request{Nonce: engine.Nonce(i + 1),
				Resources: []fencing.Resource{name}})
			return err == nil
		})
		grants = append(grants, grant)
	}
	proxy.cut(true)
	_, err = session.Renew(testContext(t))
	require.Error(t, err)
	require.NotErrorIs(t, err, engine.ErrLost, "an unreachable service has not taken the lease")
	require.NoError(t, newClient(t, []string{s.Address()}).Break(testContext(t), "a", grants[0].Token))
	proxy.cut(false)
	eventually(t, "the client renews again", func() bool {
		_, err := session.Renew(testContext(t))
		return err == nil
	})
	require.Equal(t, engine.Nonce(1), testserver.Receive(t, lost))
	for len(lost) > 0 { // a late notice may report it again
		require.Equal(t, engine.Nonce(1), testserver.Receive(t, lost), "the other lease is kept")
	}
	again, err := session.Acquire(testContext(t), engine.Request{Nonce: 2, Resources: []fencing.Resource{"b"}})
	require.NoError(t, err)
	require.Equal(t, grants[1].Token, again.Token)
}

// A session that expired while its client was disconnected stays expired.
func TestExpiryWhileDisconnected(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	proxy := newProxy(t, s.Address())
	away := newClientWith(t, []string{proxy.listener.Addr().String()}, remote.Config{Timeout: 5 * time.Second})
	lost := make(chan engine.Nonce, 10)
	session, err := away.Open(testContext(t), engine.SessionConfig{ID: engine.NewSessionID(), TTL: 10 * time.Second,
		Lost: func(n engine.Nonce, _ error) { lost <- n }})
	require.NoError(t, err)
	_, err = session.Acquire(testContext(t), engine.Request{Nonce: 1, Resources: []fencing.Resource{"a"}})
	require.NoError(t, err)
	proxy.cut(true)
	next, err := newClient(t, []string{s.Address()}).Open(testContext(t), engine.SessionConfig{ID: engine.NewSessionID(),
		TTL: 10 * time.Minute})
	require.NoError(t, err)
	_, err = next.Acquire(testContext(t), engine.Request{Nonce: 1, Resources: []fencing.Resource{"a"}, Wait: true})
	require.NoError(t, err, "the session of the other client has expired")
	proxy.cut(false)
	eventually(t, "the client learns it", func() bool {
		_, err = session.Renew(testContext(t))
		return errors.Is(err, engine.ErrLost)
	})
	require.Equal(t, engine.Nonce(1), testserver.Receive(t, lost))
	_, err = session.Acquire(testContext(t), engine.Request{Nonce: 2, Resources: []fencing.Resource{"b"}})
	require.ErrorIs(t, err, engine.ErrLost)
}

// inMemory opens a session, ends it, and returns a function that reports whether the
// client still has it in memory.
func inMemory(t *testing.T, b *remote.Backend, id engine.SessionID, end func(engine.Session)) (kept func() bool) {
	t.Helper()
	mark := new([64]byte)
	session, err := b.Open(testContext(t), engine.SessionConfig{ID: id, TTL: longTTL, Clock: engine.SystemClock(),
		Lost: func(n engine.Nonce, _ error) { mark[0] = byte(n) }})
	require.NoError(t, err)
	end(session)
	pointer := weak.Make(mark)
	return func() bool {
		runtime.GC()
		return pointer.Value() != nil
	}
}

// A connection does not keep sessions that have ended.
func TestConnectionDropsEndedSessions(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	b := newClient(t, []string{s.Address()})
	for name, end := range map[string]func(engine.Session, engine.SessionID){
		"closed": func(session engine.Session, _ engine.SessionID) { require.NoError(t, session.Close(testContext(t))) },
		"lost": func(session engine.Session, id engine.SessionID) {
			mustPost(t, s.Address(), "/v1/close-session", `{"sessionId":"`+id.String()+`"}`)
			_, err := session.Renew(testContext(t))
			require.ErrorIs(t, err, engine.ErrLost)
		},
	} {
		t.Run(name, func(t *testing.T) {
			id := engine.NewSessionID()
			kept := inMemory(t, b, id, func(session engine.Session) { end(session, id) })
			eventually(t, "the session is dropped", func() bool { return !kept() })
			_, err := b.Inspect(testContext(t), "a")
			require.NoError(t, err, "the connection is still open")
		})
	}
}

// slowNetwork advances a clock while requests of a client are on their way.
type slowNetwork struct {
	*leasetest.StoppedClock
	open, acquire, renew atomic.Int64 // the duration of the next request
}

// slowClient returns a client with a slow network.
func slowClient(t testing.TB, address string) (*remote.Backend, *slowNetwork) {
	t.Helper()
	network := &slowNetwork{StoppedClock: leasetest.NewStoppedClock()}
	intercept := func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, stream grpc.Streamer,
		options ...grpc.CallOption) (grpc.ClientStream, error) {
		s, err := stream(ctx, desc, cc, method, options...)
		if err != nil {
			return nil, err
		}
		return slowStream{s, network}, nil
	}
	return newClientWith(t, []string{address}, remote.Config{Timeout: time.Minute,
		Dial: []grpc.DialOption{grpc.WithChainStreamInterceptor(intercept)}}), network
}

type slowStream struct {
	grpc.ClientStream
	network *slowNetwork
}

func (s slowStream) SendMsg(message any) error {
	if encoded, ok := message.(*[]byte); ok {
		var r pb.SessionRequest
		if err := proto.Unmarshal(*encoded, &r); err != nil {
			return err
		}
		for _, op := range r.Operations {
			switch op.Call.(type) {
			case *pb.Operation_Open:
				s.network.Move(time.Duration(s.network.open.Swap(0)))
			case *pb.Operation_Acquire:
				s.network.Move(time.Duration(s.network.acquire.Swap(0)))
			case *pb.Operation_Renew:
				s.network.Move(time.Duration(s.network.renew.Swap(0)))
			}
		}
	}
	return s.ClientStream.SendMsg(message)
}

// The TTL of a session counts from before the request was sent: the service may have
// received it at once, however long its answer takes.
func TestTTLCountsFromTheRequest(t *testing.T) {
	t.Parallel()
	b, network := slowClient(t, startServer(t).Address())
	opened := network.Now()
	network.open.Store(int64(time.Second))
	s, err := b.Open(testContext(t), engine.SessionConfig{ID: engine.NewSessionID(), TTL: time.Hour, Clock: network})
	require.NoError(t, err)
	network.acquire.Store(int64(time.Second))
	grant, err := s.Acquire(testContext(t), engine.Request{Nonce: 1, Resources: []fencing.Resource{"a"}})
	require.NoError(t, err)
	require.Equal(t, opened, grant.Sent, "the lease ends with its session")
	require.Equal(t, 2*time.Second, network.Now().Since(opened))

	renewed := network.Now()
	network.renew.Store(int64(time.Second))
	_, err = s.Renew(testContext(t))
	require.NoError(t, err)
	require.Equal(t, time.Second, network.Now().Since(renewed))
	grant, err = s.Acquire(testContext(t), engine.Request{Nonce: 2, Resources: []fencing.Resource{"b"}})
	require.NoError(t, err)
	require.Equal(t, renewed, grant.Sent)
}

// The default clock of a client counts the time that its machine was suspended.
func TestClientClockCountsSuspend(t *testing.T) {
	t.Parallel()
	s, err := newClient(t, []string{startServer(t).Address()}).Open(testContext(t),
		engine.SessionConfig{ID: engine.NewSessionID(), TTL: time.Hour})
	require.NoError(t, err)
	grant, err := s.Acquire(testContext(t), engine.Request{Nonce: 1, Resources: []fencing.Resource{"a"}})
	require.NoError(t, err)
	// Not every system has both clocks.
	readsBoth := func(i engine.Instant) bool { return i.Since(engine.NewInstant(i.Time(), 0)) > 0 }
	require.Equal(t, readsBoth(engine.SystemClock().Now()), readsBoth(grant.Sent))
}
