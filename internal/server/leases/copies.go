package leases

import (
	"sync"

	"github.com/leased-project/leased/lease/engine"
)

// copies has the calls with an attempt that this member serves now, by their session, which copies
// of a call share.
type copies struct {
	mu     sync.Mutex
	served map[engine.SessionID]*copyCount
}

// copyCount counts the copies of one call.
type copyCount struct {
	number   int
	withdraw func()        // for the last copy, if the caller of another one is gone
	ended    chan struct{} // not nil while the attempt or its session is ended; closed after that
}

// arrive counts a copy until leave is called. It waits while another copy ends the attempt: the copy
// would find the attempt ended.
func (c *copies) arrive(id engine.SessionID) {
	for {
		c.mu.Lock()
		found := c.served[id]
		if found == nil {
			found = &copyCount{}
			if c.served == nil {
				c.served = map[engine.SessionID]*copyCount{}
			}
			c.served[id] = found
		}
		if found.ended == nil {
			found.number++
			c.mu.Unlock()
			return
		}
		c.mu.Unlock()
		<-found.ended
	}
}

// leave ends a copy. withdraw, if not nil, ends an attempt that must not stay. The last copy calls it: each of them may
// have been queued. If there is nothing to withdraw, the last copy calls its own closeUnused, if that is not nil.
func (c *copies) leave(id engine.SessionID, withdraw, closeUnused func()) {
	c.mu.Lock()
	left := c.served[id]
	left.number--
	if withdraw != nil {
		left.withdraw = withdraw
	}
	if left.number > 0 {
		c.mu.Unlock()
		return
	}
	end := left.withdraw
	if end == nil {
		end = closeUnused
	}
	if end != nil {
		left.ended = make(chan struct{})
		c.mu.Unlock()
		end()
		c.mu.Lock()
		close(left.ended)
	}
	delete(c.served, id)
	c.mu.Unlock()
}
