package leases

import (
	"fmt"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/internal/server/limits"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/lease/remote/wire"
)

const (
	// maxOperations bounds the operations of one stream whose answers were not sent.
	// Beyond it the service reads nothing from the client, which slows the client down.
	maxOperations = 1 << 16
	// maxWaiting bounds those that wait for a lock, so that a client that waits for
	// many locks can still renew its leases.
	maxWaiting = maxOperations / 2
	// maxNotices bounds the notices that were not sent.
	maxNotices = 1 << 16
	// maxAnswers bounds the answers, and the notices, of one message.
	maxAnswers = 1 << 10
)

// errNotices ends the stream of a client that does not read its notices.
var errNotices = fmt.Errorf("%w; it has %d unread notices", limits.ErrSlow, maxNotices)

// queue is what the client has not been sent yet. The stream's mu guards it.
type queue struct {
	answers []*pb.Answer
	notices []*pb.Notice
}

// take removes the next message from the queue, nil if it is empty.
func (q *queue) take() *pb.SessionResponse {
	if len(q.answers)+len(q.notices) == 0 {
		return nil
	}
	message := &pb.SessionResponse{}
	message.Answers, q.answers = split(q.answers)
	message.Notices, q.notices = split(q.notices)
	return message
}

// split returns the first elements of a list, at most maxAnswers, and the others.
func split[T any](list []T) (first, others []T) {
	if len(list) <= maxAnswers {
		return list, nil
	}
	return list[:maxAnswers:maxAnswers], list[maxAnswers:]
}

// send writes messages until the stream ends. The slots of the answers are free when
// the client has received the message, as far as flow control shows.
func (st *stream) send(server pb.LeaseService_SessionServer) {
	for {
		st.mu.Lock()
		message := st.queue.take()
		st.mu.Unlock()
		if message == nil {
			select {
			case <-st.wake:
			case <-st.ctx.Done():
				return
			}
			continue
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

func (st *stream) answer(a *pb.Answer) {
	st.mu.Lock()
	st.queue.answers = append(st.queue.answers, a)
	st.mu.Unlock()
	st.wakeSender()
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
