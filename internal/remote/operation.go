package remote

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/internal/wire"
	"github.com/leased-project/leased/lease/engine"
)

// operation is a call on the session stream. One of acquire, release and other is set.
type operation struct {
	session     engine.SessionID
	traceparent string
	acquire     engine.Request
	ttl         time.Duration // of an acquire in efficiency mode
	release     engine.Nonce  // in correctness mode
	other       *pb.Operation

	queued func()        // of an acquire; nil if the caller does not want to know
	limit  time.Duration // if it is not answered within limit the connection is closed; 0 means no limit
	urgent bool          // if it is not answered before the deadline of its context the member may be stuck
	quiet  bool          // the answer may be so large that it delays heartbeats
}

// operation returns an operation of a session, without a call.
func (c *connector) operation(ctx context.Context, session engine.SessionID) operation {
	return operation{session: session, traceparent: engine.TraceparentOf(ctx), limit: c.settings.memberTime()}
}

// acquireOperation returns the operation of a request. ttl is 0 in correctness mode. An
// acquire that waits for its lock has no limit.
func (c *connector) acquireOperation(ctx context.Context, session engine.SessionID, request engine.Request,
	ttl time.Duration) operation {
	op := c.operation(ctx, session)
	op.acquire, op.ttl = request, ttl
	if request.Queued != nil {
		op.queued = sync.OnceFunc(request.Queued)
	}
	if request.Wait {
		op.limit = 0
	}
	return op
}

// grantOf returns the grant in the answer to an acquire.
func grantOf(answer *wire.Answer) (engine.Grant, error) {
	g, err := answer.Grant()
	if err != nil {
		err = fmt.Errorf("%w: %w", engine.ErrUncertain, err)
	}
	return g, err
}

// append appends the operation to an encoded message.
func (op *operation) append(b []byte, id uint64) ([]byte, error) {
	h := wire.Header{ID: id, Session: op.session, Traceparent: op.traceparent}
	switch {
	case op.acquire.Nonce != 0:
		return wire.AppendAcquire(b, h, &op.acquire, op.ttl), nil
	case op.release != 0:
		return wire.AppendRelease(b, h, op.release), nil
	case op.other == nil:
		return nil, errors.New("nonce 0")
	}
	return wire.AppendOperation(b, h, op.other)
}

// attemptKey identifies an acquisition attempt.
type attemptKey struct {
	session engine.SessionID
	nonce   engine.Nonce
}

// pending is an operation without an answer. Its fields are guarded by the mu of its
// connection.
type pending struct {
	outcome  chan outcome // has room for one
	end      uint64       // the bytes of all operations up to this one
	queued   func()       // of an acquire; nil if the caller does not want to know
	key      attemptKey   // if queued is not nil
	limit    time.Duration
	deadline engine.Instant // if limit is not 0
	late     bool           // the deadline has passed
	waits    bool           // an acquire that waits for its lock
	quiet    bool           // of the operation
	urgent   bool           // of the operation
	sent     engine.Instant // before it was sent
}

// outcome is an answer, or the error of a connection that ended without one.
type outcome struct {
	answer wire.Answer
	err    error
}

// pendings has unused pending values, with their channels. A value returns to it when its
// connection does not know it any more and its channel is empty.
type pendings struct{ pool sync.Pool }

func (u *pendings) take() *pending {
	if p, ok := u.pool.Get().(*pending); ok {
		return p
	}
	return &pending{outcome: make(chan outcome, 1)}
}

func (u *pendings) put(p *pending) {
	*p = pending{outcome: p.outcome}
	u.pool.Put(p)
}
