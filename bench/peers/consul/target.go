package consul

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/consul/api"
	"github.com/hashicorp/go-cleanhttp"

	"github.com/leased-project/leased/internal/load"
)

const (
	// sessionTTL is the default of the library's locks.
	sessionTTL = api.DefaultLockSessionTTL
	// idleConnections is enough for the workers of a process. The default, one more than the
	// number of processors, would open a connection for nearly every request.
	idleConnections = 1024
)

// target opens sessions of the servers. The sessions are shared out among the servers.
type target struct {
	endpoints []string
	opened    atomic.Int64
	transport transport
}

// transport has the connections of a process.
type transport struct {
	once sync.Once
	http *http.Transport
}

func (t *transport) get() *http.Transport {
	t.once.Do(func() {
		t.http = cleanhttp.DefaultPooledTransport()
		t.http.MaxIdleConns, t.http.MaxIdleConnsPerHost = 0, idleConnections
	})
	return t.http
}

// Name implements [load.Target].
func (t *target) Name() string { return "consul" }

// Open implements [load.Target].
func (t *target) Open(context.Context) (load.Client, error) {
	return t.openAt(int(t.opened.Add(1)) % len(t.endpoints))
}

// openAt opens a session through one server, and keeps it alive.
func (t *target) openAt(endpoint int) (*worker, error) {
	client, err := api.NewClient(&api.Config{Address: t.endpoints[endpoint], Transport: t.transport.get()})
	if err != nil {
		return nil, err
	}
	id, _, err := client.Session().Create(&api.SessionEntry{Name: "bench", TTL: sessionTTL}, nil)
	if err != nil {
		return nil, err
	}
	w := &worker{client: client, session: id, closed: make(chan struct{}), ended: make(chan error, 1)}
	go func() { w.ended <- client.Session().RenewPeriodic(sessionTTL, id, nil, w.closed) }()
	return w, nil
}

// worker takes locks with a session.
type worker struct {
	client  *api.Client
	session string
	closed  chan struct{}
	ended   chan error
}

// Acquire implements [load.Client] with the operations that the library's api.Lock consists
// of. That type also reads before it tries, and watches each lock while it is held. It needs
// more CPU time, and gives one of many waiters nearly all grants.
func (w *worker) Acquire(ctx context.Context, name string) (load.Held, error) {
	entry := &api.KVPair{Key: name, Session: w.session, Flags: api.LockFlagValue}
	for {
		ok, _, err := w.client.KV().Acquire(entry, (&api.WriteOptions{}).WithContext(ctx))
		if err != nil {
			return nil, err
		}
		if ok {
			return held{w, entry}, nil
		}
		if err := w.waitUntilFree(ctx, name); err != nil {
			return nil, err
		}
	}
}

// waitUntilFree waits until no session holds the lock.
func (w *worker) waitUntilFree(ctx context.Context, name string) error {
	options := (&api.QueryOptions{WaitTime: api.DefaultLockWaitTime}).WithContext(ctx)
	for {
		entry, meta, err := w.client.KV().Get(name, options)
		if err != nil || entry == nil || entry.Session == "" {
			return err
		}
		options.WaitIndex = meta.LastIndex
	}
}

// Close implements [load.Client]. The end of the renewals destroys the session.
func (w *worker) Close(context.Context) error {
	close(w.closed)
	return <-w.ended
}

// held is a lock that a session holds.
type held struct {
	worker *worker
	entry  *api.KVPair
}

// Token returns 0: the answer to a grant does not contain the index of the lock.
func (h held) Token() uint64 { return 0 }

// Release implements [load.Held].
func (h held) Release(ctx context.Context) error {
	ok, _, err := h.worker.client.KV().Release(h.entry, (&api.WriteOptions{}).WithContext(ctx))
	if err == nil && !ok {
		return errors.New("release a lock of Consul: the session does not hold it")
	}
	return err
}
