package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/leased-project/leased/internal/load"
)

const (
	// sessionTimeout is a usual value: the servers allow 4 to 40 seconds.
	sessionTimeout = 10 * time.Second
	// retryInterval is the time between two attempts while no server answers.
	retryInterval = 10 * time.Millisecond
	root          = "/locks/"
)

// target opens sessions of the servers.
type target struct{ endpoints []string }

// Name implements [load.Target].
func (t *target) Name() string { return "zookeeper" }

// Open implements [load.Target].
func (t *target) Open(ctx context.Context) (load.Client, error) {
	w := &worker{endpoints: t.endpoints}
	return w, w.connect(ctx)
}

// worker takes locks with a session on its own connection.
type worker struct {
	endpoints []string

	mu   sync.Mutex
	conn *zk.Conn
}

// connect opens a session and waits for it.
func (w *worker) connect(ctx context.Context) error {
	conn, events, err := zk.Connect(w.endpoints, sessionTimeout, zk.WithLogger(quiet{}), zk.WithLogInfo(false))
	if err != nil {
		return err
	}
	for {
		select {
		case event := <-events:
			if event.State == zk.StateHasSession {
				w.conn = conn
				return nil
			}
		case <-ctx.Done():
			conn.Close()
			return fmt.Errorf("open a session of ZooKeeper: %w", ctx.Err())
		}
	}
}

// Acquire implements [load.Client]. The recipe has no context: a wait ends with the grant,
// or with the session. So the end of ctx closes the session: the recipe can wait forever
// for its own place in the queue, if the answer to its creation was lost.
func (w *worker) Acquire(ctx context.Context, name string) (load.Held, error) {
	w.mu.Lock()
	conn := w.conn
	w.mu.Unlock()
	defer context.AfterFunc(ctx, conn.Close)()
	lock := zk.NewLock(conn, root+name, zk.WorldACL(zk.PermAll))
	if err := lock.Lock(); err != nil {
		return nil, errors.Join(err, w.replace(ctx, conn))
	}
	return held{lock}, nil
}

// replace replaces a session in which an acquisition has failed: its place in the queue
// would block the lock. A session that is closed by the servers frees its locks at once,
// so replace waits for its connection first.
func (w *worker) replace(ctx context.Context, failed *zk.Conn) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.conn != failed { // another caller has replaced it
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 2*sessionTimeout)
	defer cancel()
	for failed.State() != zk.StateHasSession && ctx.Err() == nil {
		time.Sleep(retryInterval)
	}
	failed.Close()
	return w.connect(ctx)
}

// Close implements [load.Client].
func (w *worker) Close(context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.conn.Close()
	return nil
}

// held is a lock that a session holds.
type held struct{ lock *zk.Lock }

// Token returns 0: the recipe does not reveal the number of its node.
func (h held) Token() uint64 { return 0 }

// Release implements [load.Held]. It repeats a release that a lost connection has
// interrupted: the session outlives the connection, and would keep the lock.
func (h held) Release(ctx context.Context) error {
	err := h.lock.Unlock()
	if !errors.Is(err, zk.ErrConnectionClosed) {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, sessionTimeout)
	defer cancel()
	for errors.Is(err, zk.ErrConnectionClosed) && ctx.Err() == nil {
		time.Sleep(retryInterval)
		err = h.lock.Unlock()
	}
	if errors.Is(err, zk.ErrNoNode) { // the interrupted release took effect, or the session has ended
		return nil
	}
	return err
}

// quiet discards the log of the library, which reports every reconnection.
type quiet struct{}

func (quiet) Printf(string, ...any) {}
