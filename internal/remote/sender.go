package remote

import "runtime"

const (
	// messageSize is the size at which a message is full, and takes no more operations.
	// Members refuse messages of more than 4 MiB.
	messageSize = 1 << 20
	// maxDirect is the largest number of unanswered bytes with which a caller still sends
	// its operation itself. gRPC blocks after 64 KiB, and a blocked caller could not return
	// when its context ends.
	maxDirect = 32 << 10
)

// sender collects operations and writes them to the stream. Operations that arrive while a
// message is being written share the next message. The caller that finds the sender idle
// writes the message itself, which saves waking another goroutine. The connection's mu
// guards all fields.
type sender struct {
	busy     bool          // a goroutine writes, or is about to write what is in out
	wake     chan struct{} // wakes the send goroutine; has room for one
	full     []*[]byte     // messages that take no more operations
	out      *[]byte       // operations to send, nil if there are none
	added    uint64        // number of operations ever added
	enqueued uint64        // bytes of the operations ever added
	answered uint64        // bytes up to the newest operation that was answered
}

// add appends an operation and returns the bytes of all operations up to this one.
func (s *sender) add(op *operation, id uint64) (end uint64, err error) {
	if s.out != nil && len(*s.out) >= messageSize {
		s.full, s.out = append(s.full, s.out), nil
	}
	if s.out == nil {
		s.out = newBuffer()
	}
	before := len(*s.out)
	encoded, err := op.append(*s.out, id)
	if err != nil {
		return 0, err
	}
	*s.out = encoded
	s.added++
	s.enqueued += uint64(len(encoded) - before)
	return s.enqueued, nil
}

// start reports whether the caller has to send the message with its operation. Otherwise
// another goroutine sends it.
func (s *sender) start() bool {
	if s.busy {
		return false
	}
	s.busy = true
	if s.enqueued-s.answered <= maxDirect {
		return true
	}
	s.wake <- struct{}{} // it is empty, because the sender was idle
	return false
}

// next returns the next message, nil if there is none.
func (s *sender) next() *[]byte {
	if len(s.full) > 0 {
		message := s.full[0]
		s.full = s.full[1:]
		return message
	}
	message := s.out
	s.out = nil
	return message
}

// sendDirect writes one message on the goroutine of a caller, and leaves what was added
// meanwhile to the send goroutine.
func (c *connection) sendDirect() {
	c.gather()
	c.mu.Lock()
	message := c.sender.next()
	c.mu.Unlock()
	if c.stream.SendMsg(message) != nil {
		return // receive gets the error, and nothing more is sent
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sender.out == nil {
		c.sender.busy = false
		return
	}
	c.sender.wake <- struct{}{}
}

// send writes messages when it is woken.
func (c *connection) send() {
	for {
		select {
		case <-c.sender.wake:
		case <-c.down:
			return
		}
		for {
			c.gather()
			c.mu.Lock()
			message := c.sender.next()
			c.sender.busy = message != nil
			c.mu.Unlock()
			if message == nil {
				break
			}
			if c.stream.SendMsg(message) != nil {
				return // receive gets the error
			}
		}
	}
}

// gather lets other goroutines run as long as they add operations, so that one message
// has them all. It does not if there is only one caller.
func (c *connection) gather() {
	c.mu.Lock()
	added, alone := c.sender.added, len(c.pending) == 1
	c.mu.Unlock()
	for !alone {
		runtime.Gosched()
		c.mu.Lock()
		now := c.sender.added
		c.mu.Unlock()
		if now == added {
			return
		}
		added = now
	}
}
