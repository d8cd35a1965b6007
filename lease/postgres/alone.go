package postgres

import (
	"sync"

	"github.com/leased-project/leased/lease/engine"
)

// alone limits the calls that wait for a lock in their own transaction: one for each lock or set at a time, so that a
// busy one delays no others, and as many as slots has room for. The other connections of the pool are for renewals and
// batches.
type alone struct {
	slots chan struct{}

	mu    sync.Mutex
	turns map[string]*turn
}

// turn is the queue of the calls for a lock or a set.
type turn struct {
	taken chan struct{}
	calls int
}

// do calls send when it is the turn of a call.
func (a *alone) do(c *call, send func() error) error {
	a.mu.Lock()
	if a.turns[c.name] == nil {
		a.turns[c.name] = &turn{taken: make(chan struct{}, 1)}
	}
	t := a.turns[c.name]
	t.calls++
	a.mu.Unlock()
	defer func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if t.calls--; t.calls == 0 {
			delete(a.turns, c.name)
		}
	}()
	for _, room := range []chan struct{}{t.taken, a.slots} {
		select {
		case room <- struct{}{}:
			defer func() { <-room }()
		case <-c.ctx.Done():
			return engine.Cause(c.ctx)
		}
	}
	return send()
}
