package remote

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"google.golang.org/grpc"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/lease/remote/secret"
	"github.com/leased-project/leased/lease/remote/wire"
)

// link is one connection to one member, with its session stream.
type link struct {
	uplink  *uplink
	address string
	conn    *grpc.ClientConn
	leases  pb.LeaseServiceClient
	stream  pb.LeaseService_SessionClient

	down   chan struct{} // closed when it has ended
	cancel context.CancelFunc
	once   sync.Once
	wake   chan struct{} // there is something to send

	mu       sync.Mutex
	why      error // of down
	draining bool  // it ends when nothing is under way
	last     uint64
	out      []*pb.Operation
	pending  map[uint64]*pending
	waiting  map[attempt]*pending          // acquires whose callers want to know that they wait
	sessions map[engine.SessionID]*session // those that are attached here
}

// pending is an operation without an answer.
type pending struct {
	answer chan *pb.Answer // has room for one
	queued func()          // of an acquire, nil if nobody wants to know
	key    attempt
	urgent bool // if it is not answered in time the link is given up
}

// attempt is the identity of an acquire.
type attempt struct {
	session engine.SessionID
	nonce   engine.Nonce
}

// newConn is a connection to a member, made when it is first used.
func (s *settings) newConn(address string, more ...grpc.DialOption) (*grpc.ClientConn, error) {
	options := append(append(append(secret.DialOptions(s.tls, s.secret), grpc.WithNoProxy()), s.dial...), more...)
	return grpc.NewClient("passthrough:///"+address, options...)
}

// openLink connects to a member and opens the stream.
func openLink(ctx context.Context, u *uplink, address string) (*link, error) {
	conn, err := u.settings.newConn(address)
	if err != nil {
		return nil, err
	}
	l := &link{uplink: u, address: address, conn: conn, leases: pb.NewLeaseServiceClient(conn), down: make(chan struct{}),
		wake: make(chan struct{}, 1), pending: map[uint64]*pending{}, waiting: map[attempt]*pending{}, sessions: map[engine.SessionID]*session{}}
	streamCtx, cancel := context.WithCancel(context.Background())
	l.cancel = cancel
	defer context.AfterFunc(ctx, cancel)() // while it connects
	limit := time.AfterFunc(connectTime, cancel)
	l.stream, err = l.leases.Session(streamCtx)
	if !limit.Stop() && err == nil {
		err = fmt.Errorf("no connection within %v", connectTime)
	}
	if err != nil {
		cancel()
		conn.Close()
		return nil, err
	}
	go l.send()
	go l.receive()
	return l, nil
}

// close ends the link. Operations that are under way are asked again on the next
// one.
func (l *link) close(why error) {
	l.once.Do(func() {
		l.mu.Lock()
		l.why = why
		l.mu.Unlock()
		close(l.down)
		l.cancel()
		l.conn.Close()
	})
}

// drain ends the link when nothing is under way on it.
func (l *link) drain() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.draining = true
	l.endIfDrained()
}

// endIfDrained is called with mu.
func (l *link) endIfDrained() {
	if l.draining && len(l.pending) == 0 {
		go l.close(errSilent)
	}
}

func (l *link) isDown() bool {
	select {
	case <-l.down:
		return true
	default:
		return false
	}
}

// send writes what callers ask for. All that has been asked for since the last
// message goes into the next one; callers that are about to ask are let run, as
// long as that brings something.
func (l *link) send() {
	for {
		select {
		case <-l.wake:
		case <-l.down:
			return
		}
		for seen := -1; ; runtime.Gosched() {
			l.mu.Lock()
			waiting := len(l.out)
			l.mu.Unlock()
			if waiting == seen {
				break
			}
			seen = waiting
		}
		l.mu.Lock()
		message := &pb.SessionRequest{Operations: l.out}
		l.out = nil
		l.mu.Unlock()
		if len(message.Operations) == 0 {
			continue
		}
		if err := l.stream.Send(message); err != nil {
			return // receive sees why
		}
	}
}

// receive hands out what the service says.
func (l *link) receive() {
	for {
		message, err := l.stream.Recv()
		if err != nil {
			l.close(wire.FromStatus(err))
			return
		}
		for _, n := range message.Notices {
			l.notice(n)
		}
		l.mu.Lock()
		for _, a := range message.Answers {
			if p := l.pending[a.Id]; p != nil {
				p.answer <- a
				l.drop(a.Id, p)
			}
		}
		l.mu.Unlock()
	}
}

func (l *link) notice(n *pb.Notice) {
	if len(n.Session) != len(engine.SessionID{}) {
		return
	}
	key := attempt{engine.SessionID(n.Session), engine.Nonce(n.Nonce)}
	l.mu.Lock()
	s := l.sessions[key.session]
	p := l.waiting[key]
	l.mu.Unlock()
	switch {
	case n.Lost == nil && p != nil:
		p.queued()
	case n.Lost != nil && s != nil:
		s.lost(key.nonce, wire.ToError(n.Lost))
	}
}

// do sends an operation and waits for its answer. limit, if not 0, is how long
// that may take before the link is given up.
func (l *link) do(ctx context.Context, op *pb.Operation, p *pending, limit time.Duration) (*pb.Answer, error) {
	p.answer = make(chan *pb.Answer, 1)
	l.mu.Lock()
	l.last++
	op.Id = l.last
	l.pending[op.Id] = p
	if p.queued != nil {
		l.waiting[p.key] = p
	}
	l.out = append(l.out, op)
	l.mu.Unlock()
	select {
	case l.wake <- struct{}{}:
	default:
	}
	var late <-chan time.Time
	if limit > 0 {
		timer := time.NewTimer(limit)
		defer timer.Stop()
		late = timer.C
	}
	select {
	case a := <-p.answer:
		return a, wire.ToError(a.Error)
	case <-l.down:
		select {
		case a := <-p.answer:
			return a, wire.ToError(a.Error)
		default:
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		if errors.Is(l.why, wire.ErrUnauthenticated) && !errors.Is(l.why, engine.ErrUncertain) {
			return nil, l.why // the stream was refused, so nothing on it was looked at
		}
		return nil, fmt.Errorf("%w: the connection to %s has ended: %w", engine.ErrUncertain, l.address, l.why)
	case <-late:
		l.forget(op.Id, p)
		l.uplink.retire(l, "", errSilent)
		return nil, fmt.Errorf("%w: %s has not answered within %v", engine.ErrUncertain, l.address, limit)
	case <-ctx.Done():
		l.forget(op.Id, p)
		if p.urgent && errors.Is(ctx.Err(), context.DeadlineExceeded) {
			l.uplink.retire(l, "", errSilent)
		}
		return nil, fmt.Errorf("%w: %w", engine.ErrUncertain, context.Cause(ctx))
	}
}

var errSilent = fmt.Errorf("%w: it does not answer", engine.ErrUncertain)

func (l *link) forget(id uint64, p *pending) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drop(id, p)
}

// drop takes an operation out of the books. The caller holds mu.
func (l *link) drop(id uint64, p *pending) {
	delete(l.pending, id)
	if l.waiting[p.key] == p {
		delete(l.waiting, p.key)
	}
	l.endIfDrained()
}
