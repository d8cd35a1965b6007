package callgate

import (
	"context"
	"sync"

	"github.com/leased-project/leased/fencing"
)

// resourceMutex is a mutex for each resource. Waiters are served first come,
// first served, and a wait can be cancelled. The zero value is ready to use. It
// uses memory only for resources that are locked.
type resourceMutex struct {
	mu    sync.Mutex
	locks map[fencing.Resource]*resourceLock
}

type resourceLock struct {
	locked chan struct{} // full while a caller holds the lock
	users  int           // callers that hold the lock or wait for it; guarded by resourceMutex.mu
}

// Lock locks the resource and returns the function that unlocks it, to be called
// once. It stops waiting when ctx ends.
func (m *resourceMutex) Lock(ctx context.Context, resource fencing.Resource) (unlock func(), err error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	l := m.join(resource)
	select {
	case l.locked <- struct{}{}:
		return func() {
			<-l.locked
			m.leave(resource, l)
		}, nil
	case <-ctx.Done():
		m.leave(resource, l)
		return nil, context.Cause(ctx)
	}
}

func (m *resourceMutex) join(resource fencing.Resource) *resourceLock {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.locks == nil {
		m.locks = make(map[fencing.Resource]*resourceLock)
	}
	l := m.locks[resource]
	if l == nil {
		l = &resourceLock{locked: make(chan struct{}, 1)}
		m.locks[resource] = l
	}
	l.users++
	return l
}

func (m *resourceMutex) leave(resource fencing.Resource, l *resourceLock) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if l.users--; l.users == 0 {
		delete(m.locks, resource)
	}
}
