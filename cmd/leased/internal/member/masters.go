package member

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/leased-project/leased/cmd/leased/internal/settings"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/server"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/redlockadapter"
)

// reconnectPause is the time between two tries to reach the Redis masters.
const reconnectPause = time.Second

// masters are the Redis masters of a member. The member serves the correctness
// mode while a majority of them is out of reach, also from the start; what needs
// them is refused until they are there.
//
// The backend is never closed: that would release leases that clients keep
// through another member.
type masters struct {
	config redlockadapter.Config
	logger *slog.Logger

	mu      sync.Mutex
	backend *redlockadapter.Backend // nil until a majority was reached once
	why     error                   // it is nil
}

var (
	_ server.Efficiency  = (*masters)(nil)
	_ server.FloorRaiser = (*masters)(nil)
)

// connectRedis connects to the masters. That they cannot be reached is no error;
// that they are not fit to vote is.
func connectRedis(ctx context.Context, s *settings.Settings, logger *slog.Logger) (*masters, error) {
	config, err := RedisConfig(s)
	if err != nil {
		return nil, err
	}
	m := &masters{config: config, logger: logger}
	err = m.connect(ctx)
	if errors.Is(err, lease.ErrUnavailable) && ctx.Err() == nil {
		logger.Warn("no majority of the Redis masters can be reached: locks of the efficiency mode are refused until it is", "error", err)
		return m, nil
	}
	if err != nil {
		return nil, fmt.Errorf("redis (%s): %w", strings.Join(s.Redis, ","), err)
	}
	return m, nil
}

func (m *masters) connect(ctx context.Context) error {
	backend, err := redlockadapter.New(ctx, m.config)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.backend, m.why = backend, err
	return err
}

// run tries to connect until it has, or ctx ends.
func (m *masters) run(ctx context.Context) {
	tick := time.NewTicker(reconnectPause)
	defer tick.Stop()
	told := ""
	for {
		if _, err := m.get(); err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		switch err := m.connect(ctx); {
		case err == nil:
			m.logger.Info("the Redis masters are reached: locks of the efficiency mode are served")
		case ctx.Err() == nil && err.Error() != told:
			told = err.Error()
			m.logger.Warn("the Redis masters cannot be used yet", "error", err)
		}
	}
}

// get is the backend; the error matches lease.ErrUnavailable.
func (m *masters) get() (*redlockadapter.Backend, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.backend == nil {
		return nil, fmt.Errorf("%w: this member has not reached a majority of its Redis masters since it was started: %w", lease.ErrUnavailable, m.why)
	}
	return m.backend, nil
}

// Open opens a session.
func (m *masters) Open(ctx context.Context, config lease.SessionConfig) (lease.Session, error) {
	backend, err := m.get()
	if err != nil {
		return nil, err
	}
	return backend.Open(ctx, config)
}

// Inspect tells who holds a lock.
func (m *masters) Inspect(ctx context.Context, resource fencing.Resource) (lease.Status, error) {
	backend, err := m.get()
	if err != nil {
		return lease.Status{}, err
	}
	return backend.Inspect(ctx, resource)
}

// Watch tells what happens to a lock.
func (m *masters) Watch(ctx context.Context, resource fencing.Resource, changed func(lease.Status)) error {
	backend, err := m.get()
	if err != nil {
		return err
	}
	return backend.Watch(ctx, resource, changed)
}

// Break takes a lease away.
func (m *masters) Break(ctx context.Context, resource fencing.Resource, token fencing.Token) error {
	backend, err := m.get()
	if err != nil {
		return err
	}
	return backend.Break(ctx, resource, token)
}

// RaiseFloor makes all later tokens larger than one.
func (m *masters) RaiseFloor(ctx context.Context, above fencing.Token) error {
	backend, err := m.get()
	if err != nil {
		return err
	}
	return backend.RaiseFloor(ctx, above)
}

// NodeStatuses tells how the masters are doing.
func (m *masters) NodeStatuses(ctx context.Context) []redlockadapter.NodeStatus {
	if backend, err := m.get(); err == nil {
		return backend.NodeStatuses(ctx)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	statuses := make([]redlockadapter.NodeStatus, 0, len(m.config.Nodes))
	for _, o := range m.config.Nodes {
		statuses = append(statuses, redlockadapter.NodeStatus{Addr: o.Addr, Err: m.why})
	}
	return statuses
}
