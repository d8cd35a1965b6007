package guarded

import (
	"context"
	"errors"
	"sync"

	"github.com/leased-project/leased/internal/load"
)

// pairClient acquires a lock, and writes before it releases it.
type pairClient struct {
	load.Client
	peer *peer
}

// Acquire implements [load.Client].
func (c *pairClient) Acquire(ctx context.Context, name string) (load.Held, error) {
	held, err := c.Client.Acquire(ctx, name)
	if err != nil {
		return nil, err
	}
	return &guardedHeld{held, c.peer, name}, nil
}

type guardedHeld struct {
	load.Held
	peer *peer
	name string
}

// Release writes and releases the lock.
func (h *guardedHeld) Release(ctx context.Context) error {
	return errors.Join(h.peer.db.write(ctx, h.peer.gated, h.name, h.Token()), h.Held.Release(ctx))
}

// writeClient writes under locks that it keeps. Its Acquire is one write.
type writeClient struct {
	locks load.Client
	peer  *peer

	mu     sync.Mutex
	held   []load.Held
	tokens map[string]uint64
}

// Acquire writes under the lock, which the first write acquires.
func (c *writeClient) Acquire(ctx context.Context, name string) (load.Held, error) {
	token, err := c.token(ctx, name)
	if err != nil {
		return nil, err
	}
	return written(token), c.peer.db.write(ctx, c.peer.gated, name, token)
}

func (c *writeClient) token(ctx context.Context, name string) (uint64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if token, ok := c.tokens[name]; ok {
		return token, nil
	}
	held, err := c.locks.Acquire(ctx, name)
	if err != nil {
		return 0, err
	}
	c.held, c.tokens[name] = append(c.held, held), held.Token()
	return held.Token(), nil
}

// Close releases all locks.
func (c *writeClient) Close(ctx context.Context) error {
	var errs []error
	for _, held := range c.held {
		errs = append(errs, held.Release(ctx))
	}
	return errors.Join(append(errs, c.locks.Close(ctx))...)
}

// written is a completed write.
type written uint64

// Token implements [load.Held].
func (w written) Token() uint64 { return uint64(w) }

// Release does nothing: the lock stays held.
func (w written) Release(context.Context) error { return nil }
