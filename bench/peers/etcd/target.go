package etcd

import (
	"context"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"

	"github.com/leased-project/leased/internal/load"
)

// target is the cluster as a process uses it: its workers share one client, and each has
// a session.
type target struct {
	endpoints []string

	mu     sync.Mutex
	client *clientv3.Client // nil while there is no session
	users  int              // number of sessions
}

// Name implements [load.Target].
func (t *target) Name() string { return "etcd" }

func (t *target) dial() (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{Endpoints: t.endpoints, Logger: zap.NewNop(), DialTimeout: dialTimeout})
}

// Open implements [load.Target].
func (t *target) Open(context.Context) (load.Client, error) {
	client, err := t.use()
	if err != nil {
		return nil, err
	}
	session, err := concurrency.NewSession(client)
	if err != nil {
		t.leave()
		return nil, err
	}
	return &worker{t, session}, nil
}

func (t *target) use() (*clientv3.Client, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.users == 0 {
		client, err := t.dial()
		if err != nil {
			return nil, err
		}
		t.client = client
	}
	t.users++
	return t.client, nil
}

func (t *target) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.users--; t.users == 0 {
		_ = t.client.Close()
		t.client = nil
	}
}

// worker takes locks with a session.
type worker struct {
	target  *target
	session *concurrency.Session
}

// Acquire implements [load.Client].
func (w *worker) Acquire(ctx context.Context, name string) (load.Held, error) {
	m := concurrency.NewMutex(w.session, name)
	if err := m.Lock(ctx); err != nil {
		return nil, err
	}
	return held{m}, nil
}

// Close implements [load.Client].
func (w *worker) Close(context.Context) error {
	defer w.target.leave()
	return w.session.Close()
}

type held struct{ mutex *concurrency.Mutex }

// Token returns the revision of the store at the grant, which grows with each holder.
func (h held) Token() uint64 { return uint64(h.mutex.Header().Revision) }

// Release implements [load.Held].
func (h held) Release(ctx context.Context) error { return h.mutex.Unlock(ctx) }
