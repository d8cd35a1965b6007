package callgate

import (
	"context"
	"sync"

	"github.com/leased-project/leased/fencing"
)

// Turns gives each resource one turn at a time, first come, first served. The
// zero value is ready to use. It remembers only resources that are in use.
type Turns struct {
	mu    sync.Mutex
	lines map[fencing.Resource]*line
}

// line is the queue in front of one resource.
type line struct {
	taken chan struct{} // full while somebody has the turn
	users int           // those that wait or have the turn; guarded by Turns.mu
}

// Take waits for the turn of the resource and returns the function that ends
// it, to be called once. It gives up when ctx does.
func (t *Turns) Take(ctx context.Context, resource fencing.Resource) (end func(), err error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	l := t.join(resource)
	select {
	case l.taken <- struct{}{}:
		return func() {
			<-l.taken
			t.leave(resource, l)
		}, nil
	case <-ctx.Done():
		t.leave(resource, l)
		return nil, context.Cause(ctx)
	}
}

func (t *Turns) join(resource fencing.Resource) *line {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lines == nil {
		t.lines = make(map[fencing.Resource]*line)
	}
	l := t.lines[resource]
	if l == nil {
		l = &line{taken: make(chan struct{}, 1)}
		t.lines[resource] = l
	}
	l.users++
	return l
}

func (t *Turns) leave(resource fencing.Resource, l *line) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l.users--; l.users == 0 {
		delete(t.lines, resource)
	}
}
