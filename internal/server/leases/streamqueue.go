package leases

import (
	"fmt"
	"sync"
	"time"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/internal/clientcore"
	"github.com/leased-project/leased/internal/server/limits"
	"github.com/leased-project/leased/internal/wire"
	"github.com/leased-project/leased/lease/engine"
)

const (
	// maxOperations bounds the operations of one stream whose answers were not sent.
	// Beyond it the service reads nothing from the client, which slows the client down.
	maxOperations = 1 << 16
	// maxWaiting bounds the operations that wait for a lock, so that a client that waits
	// for many locks can still renew its leases.
	maxWaiting = maxOperations / 2
	// maxNotices bounds the notices that were not sent.
	maxNotices = 1 << 16
	// maxAnswers bounds the answers, and the notices, of one message.
	maxAnswers = 1 << 10
)

// errNotices ends the stream of a client that does not read its notices.
var errNotices = fmt.Errorf("%w; it has %d unread notices", limits.ErrSlow, maxNotices)

// queue has the answers and notices that the client has not been sent yet. The stream's mu
// guards it.
type queue struct {
	ended   []*operation
	notices []*pb.Notice
	closed  bool // nothing is sent any longer
}

// add queues the answer of an operation. The operation is recorded even if the client is
// gone.
func (q *queue) add(mu *sync.Mutex, o *operation) {
	mu.Lock()
	defer mu.Unlock()
	if q.closed {
		go o.finish()
		return
	}
	q.ended = append(q.ended, o)
}

// close records the operations whose answers were not sent.
func (q *queue) close(mu *sync.Mutex) {
	mu.Lock()
	ended := q.ended
	q.ended, q.closed = nil, true
	mu.Unlock()
	for _, o := range ended {
		o.finish()
	}
}

// take removes the contents of the next message from the queue.
func (q *queue) take() (ended []*operation, notices []*pb.Notice) {
	ended, q.ended = split(q.ended)
	notices, q.notices = split(q.notices)
	return ended, notices
}

// split returns the first elements of a list, at most maxAnswers, and the others.
func split[T any](list []T) (first, others []T) {
	if len(list) <= maxAnswers {
		return list, nil
	}
	return list[:maxAnswers:maxAnswers], list[maxAnswers:]
}

// send writes messages until the stream ends. Empty messages show the client that this
// member is alive. The slots of the answers are free when the client has received the
// message, as far as flow control shows.
func (st *stream) send(server pb.LeaseService_SessionServer) {
	alive := time.NewTicker(clientcore.HeartbeatInterval)
	defer alive.Stop()
	for {
		st.mu.Lock()
		ended, notices := st.queue.take()
		st.mu.Unlock()
		if len(ended)+len(notices) == 0 {
			select {
			case <-st.wake:
				continue
			case <-alive.C:
			case <-st.ctx.Done():
				return
			}
		}
		message := &pb.SessionResponse{Answers: make([]*pb.Answer, len(ended)), Notices: notices}
		for i, o := range ended {
			message.Answers[i] = o.finish()
		}
		if server.Send(message) != nil {
			return // Recv fails too, and ends the stream
		}
		for range message.Answers {
			<-st.slots
		}
	}
}

// wakeSender makes send look at the queue.
func (st *stream) wakeSender() {
	select {
	case st.wake <- struct{}{}:
	default:
	}
}

// notify reports a lost lease, or without an error an attempt that waits.
func (st *stream) notify(id engine.SessionID, nonce engine.Nonce, lost error) {
	n := &pb.Notice{Session: id[:], Nonce: uint64(nonce), Lost: wire.FromError(lost)}
	st.mu.Lock()
	full := len(st.queue.notices) == maxNotices
	if !full {
		st.queue.notices = append(st.queue.notices, n)
	}
	st.mu.Unlock()
	if full {
		st.cancel(errNotices)
	}
	st.wakeSender()
}
