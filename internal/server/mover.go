package server

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/lease/remote/wire"
	"github.com/leased-project/leased/raftstore"
)

// mover changes policies, and takes the locks that get another mode from one
// engine to the other: see router for why they never have holders in both. Their
// tokens keep growing: the engine that they come to is first told to grant only
// above every token of the one that they come from.
//
// A move leaves a mark in the policies until it is complete. If it is cut short
// the locks stay closed in the efficiency mode, and the same call again finishes
// it.
type mover struct {
	config *Config
	router *router
	mu     sync.Mutex // one change at a time
}

// change is one call: policies go to what commit makes of them.
type change struct {
	prefix string
	after  lease.Mode // of the locks that prefix decides about, when it is done
	commit func(ctx context.Context, version uint64) (uint64, error)
}

// set adds or replaces a policy.
func (m *mover) set(ctx context.Context, p lease.Policy, version uint64) (uint64, error) {
	if err := checkPrefix(p.Prefix); err != nil {
		return 0, err
	}
	if p.Mode == lease.Efficiency && p.TTL > m.config.RedisMaxTTL {
		return 0, fmt.Errorf("%w: ttl (%v) must be at most redis-max-ttl (%v) in the efficiency mode", lease.ErrInvalid, p.TTL, m.config.RedisMaxTTL)
	}
	return m.change(ctx, version, func(lease.Policies) (change, error) {
		return change{prefix: p.Prefix, after: p.Mode, commit: func(ctx context.Context, version uint64) (uint64, error) {
			return m.router.node.SetPolicy(ctx, p, version)
		}}, nil
	})
}

// delete removes a policy.
func (m *mover) delete(ctx context.Context, prefix string, version uint64) (uint64, error) {
	if err := checkPrefix(prefix); err != nil {
		return 0, err
	}
	return m.change(ctx, version, func(now lease.Policies) (change, error) {
		next, found := now.Without(prefix)
		switch {
		case !found && hasPolicy(now, movingMark+prefix): // it was deleted by a move that is unfinished
			return change{prefix: prefix, after: (view{next}).modeOf(fencing.Resource(prefix)),
				commit: func(_ context.Context, version uint64) (uint64, error) { return version, nil }}, nil
		case !found:
			return change{}, fmt.Errorf("%w: there is no policy for %q; ListPolicies tells those there are", lease.ErrInvalid, prefix)
		}
		return change{prefix: prefix, after: (view{next}).modeOf(fencing.Resource(prefix)), commit: func(ctx context.Context, version uint64) (uint64, error) {
			return m.router.node.DeletePolicy(ctx, prefix, version)
		}}, nil
	})
}

// changeTries is how often a change is tried.
const changeTries = 3

// maxPrefix leaves room for the mark of a move.
const maxPrefix = fencing.MaxResourceLen - len(movingMark)

func checkPrefix(prefix string) error {
	if len(prefix) > maxPrefix {
		return fmt.Errorf("%w: the prefix has %d bytes, at most %d are allowed", lease.ErrInvalid, len(prefix), maxPrefix)
	}
	if strings.HasPrefix(prefix, reserved) {
		return fmt.Errorf("%w: names that begin with %q belong to the service: %q", lease.ErrInvalid, reserved, prefix)
	}
	return nil
}

// change is tried again when other policies have changed under it, unless the
// caller has named a version.
func (m *mover) change(ctx context.Context, version uint64, plan func(now lease.Policies) (change, error)) (next uint64, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for range changeTries {
		next, err = m.try(ctx, version, plan)
		if version != 0 || !errors.Is(err, raftstore.ErrVersion) {
			break
		}
	}
	if errors.Is(err, raftstore.ErrVersion) {
		err = fmt.Errorf("%w: %w", wire.ErrOutdated, err)
	}
	return next, err
}

func (m *mover) try(ctx context.Context, version uint64, plan func(now lease.Policies) (change, error)) (uint64, error) {
	now, at, err := m.router.node.Policies(ctx, raftstore.Linearizable)
	if err != nil {
		return 0, err
	}
	if version != 0 && version != at {
		return 0, fmt.Errorf("%w: the policies have version %d, not %d", wire.ErrOutdated, at, version)
	}
	c, err := plan(now)
	if err != nil {
		return 0, err
	}
	before := (view{now}).modeOf(fencing.Resource(c.prefix))
	marked := hasPolicy(now, movingMark+c.prefix)
	if before == c.after && !marked {
		return c.commit(ctx, at)
	}
	return m.move(ctx, c, before, at, marked)
}

func hasPolicy(policies lease.Policies, prefix string) bool {
	_, found := policies.Without(prefix)
	return found
}

// move takes locks from one mode to the other. Every step names the version that
// it builds on, so that nothing can have happened in between.
func (m *mover) move(ctx context.Context, c change, before lease.Mode, at uint64, marked bool) (uint64, error) {
	if err := m.possible(before, c.after); err != nil {
		return 0, err
	}
	mark := lease.Policy{Prefix: movingMark + c.prefix, Mode: lease.Correctness}
	var err error
	if !marked {
		if at, err = m.router.node.SetPolicy(ctx, mark, at); err != nil {
			return 0, err
		}
	}
	if before == lease.Efficiency && c.after == lease.Correctness {
		if err := m.drain(ctx); err != nil {
			return 0, fmt.Errorf("%w: the move of %q is unfinished, repeat it: %w", lease.ErrUnavailable, c.prefix, err)
		}
	}
	next, err := c.commit(ctx, at)
	if errors.Is(err, lease.ErrHeld) {
		_, undo := m.router.node.DeletePolicy(ctx, mark.Prefix, at)
		return 0, errors.Join(err, undo)
	}
	if err != nil {
		return 0, err
	}
	if c.after == lease.Efficiency {
		// The machine has granted its last token for these locks by now.
		last := m.router.node.Status().LastToken
		if err := m.config.RedisFloor.RaiseFloor(ctx, last); err != nil {
			return 0, fmt.Errorf("%w: the move of %q is unfinished, repeat it: raise the floor of Redis: %w", lease.ErrUnavailable, c.prefix, err)
		}
	}
	return m.router.node.DeletePolicy(ctx, mark.Prefix, next)
}

// possible refuses a move before anything has happened.
func (m *mover) possible(before, after lease.Mode) error {
	switch {
	case after == lease.Efficiency && m.router.redis == nil:
		return errNoRedis
	case after == lease.Efficiency && m.config.RedisFloor == nil:
		return fmt.Errorf("%w: the Redis engine cannot raise its token floor, so tokens could go back", lease.ErrUnsupported)
	case before == lease.Efficiency && after == lease.Correctness && m.router.redis == nil:
		return fmt.Errorf("%w: without its Redis nodes nobody knows which tokens the locks had; start the service with them", lease.ErrUnsupported)
	case before == lease.Efficiency && after == lease.Correctness && m.config.RaftFloor == nil:
		return fmt.Errorf("%w: the Raft engine cannot raise its token floor, so tokens could go back", lease.ErrUnsupported)
	}
	return nil
}

// drain waits until no lease of the efficiency mode that was granted before the
// mark can be left, then raises the Raft engine's tokens above them.
func (m *mover) drain(ctx context.Context) error {
	timer := time.NewTimer(policyAge + m.config.RedisMaxTTL)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	nodes := m.router.redis.NodeStatuses(ctx)
	told, last := 0, fencing.None
	for _, n := range nodes {
		if n.Err == nil && !n.Empty {
			told++
			last = max(last, n.Max, n.Floor)
		}
	}
	if told <= len(nodes)/2 { // a granted token is on a majority: any majority knows it
		return fmt.Errorf("%w: %d of %d Redis nodes tell their largest token", lease.ErrUnavailable, told, len(nodes))
	}
	return m.config.RaftFloor.RaiseFloor(ctx, last)
}
