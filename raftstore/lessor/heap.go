package lessor

import (
	"bytes"
	"cmp"
	"time"

	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/machine"
)

// deadline is the next check of a session, the end of a lock-delay, or the next EndRequests.
type deadline struct {
	at      time.Time
	session engine.SessionID
	command machine.Command // nil for a session
	number  uint64          // of the lock-delay, which is unique
	index   int             // in the heap, -1 if it is not there
}

// deadlineHeap has the earliest deadline first. Its order is total, so that Due
// returns the same commands whatever order they were added in.
type deadlineHeap []*deadline

func (h deadlineHeap) Len() int { return len(h) }

func (h deadlineHeap) Less(i, j int) bool {
	a, b := h[i], h[j]
	return cmp.Or(a.at.Compare(b.at), bytes.Compare(a.session[:], b.session[:]), cmp.Compare(a.number, b.number)) < 0
}

func (h deadlineHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *deadlineHeap) Push(x any) {
	d := x.(*deadline)
	d.index = len(*h)
	*h = append(*h, d)
}

func (h *deadlineHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	last.index = -1
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return last
}
