package leases

import (
	"fmt"
	"sync"
	"time"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/internal/clientcore"
	"github.com/leased-project/leased/internal/server/calls"
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
	sends   bool // there is a sender, or the client can be sent nothing any longer
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

// startSender makes the caller the sender, unless there is one or the stream is closed. A
// sender calls send.
func (st *stream) startSender(evenIfEmpty bool) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	if q := &st.queue; q.sends || q.closed || !evenIfEmpty && len(q.ended)+len(q.notices) == 0 {
		return false
	}
	st.queue.sends = true
	st.sending.Add(1)
	return true
}

// send writes a message, and further ones until the queue is empty. The slots of the answers are
// free when the client has received the message, as far as flow control shows.
func (st *stream) send() {
	defer st.sending.Done()
	for more := true; more; {
		st.mu.Lock()
		ended, notices := st.queue.take()
		st.mu.Unlock()
		message := &pb.SessionResponse{Answers: make([]*pb.Answer, len(ended)), Notices: notices}
		for i, o := range ended {
			message.Answers[i] = o.finish()
		}
		if st.server.Send(message) != nil {
			return // Recv fails too, and ends the stream
		}
		for range message.Answers {
			<-st.slots
		}
		st.mu.Lock()
		more = len(st.queue.ended)+len(st.queue.notices) > 0
		st.queue.sends = more
		st.mu.Unlock()
	}
}

// wakeSender makes a sender send the queue.
func (st *stream) wakeSender() {
	if st.startSender(false) {
		go st.send()
	}
}

// startHeartbeat sends a message now and then, which is empty if there is nothing to send: it
// shows the client that this member is alive.
func (st *stream) startHeartbeat() {
	st.mu.Lock() // the timer may fire before it is stored
	defer st.mu.Unlock()
	st.alive = time.AfterFunc(clientcore.HeartbeatInterval, func() {
		if st.startSender(true) {
			st.send()
		}
		st.mu.Lock()
		defer st.mu.Unlock()
		if !st.queue.closed {
			st.alive.Reset(clientcore.HeartbeatInterval)
		}
	})
}

// close waits for the sender, and records the operations whose answers were not sent.
func (st *stream) close() {
	st.mu.Lock()
	st.queue.closed = true
	st.alive.Stop()
	st.mu.Unlock()
	st.sending.Wait()
	st.mu.Lock()
	ended := st.queue.ended
	st.queue.ended = nil
	st.mu.Unlock()
	for _, o := range ended {
		o.finish()
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
		calls.EndStream(st.ctx, errNotices)
	}
	st.wakeSender()
}
