package gatetest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate"
)

var errWrite = errors.New("the write failed")

func failedWrite(s *scenario, g Pauser) {
	fail := func() error { return errWrite }
	require.ErrorIs(s, g.WritePaused(s.ctx, orders, 3, "lost", fail), errWrite)
	s.holds(g, orders, fencing.None, "")
	require.NoError(s, g.Write(s.ctx, orders, 1, "one"), "the failed write must not have fenced the resource")
	require.ErrorIs(s, g.WritePaused(s.ctx, orders, 3, "lost", fail), errWrite)
	s.holds(g, orders, 1, "one")
	require.Equal(s, storagegate.Counts{Admitted: 1}, g.Counts(), "a failed write is not a decision")
	require.NoError(s, s.handle().Write(s.ctx, orders, 2, "two"), "the failed write must not hold a lock")
	s.refused(g.WritePaused(s.ctx, orders, 1, "stale", fail), orders, 1, 2)
}

func panickingWrite(s *scenario, g Pauser) {
	require.NoError(s, g.Write(s.ctx, orders, 1, "one"))
	require.PanicsWithValue(s, "in the write", func() {
		_ = g.WritePaused(s.ctx, orders, 3, "lost", func() error { panic("in the write") })
	})
	s.holds(g, orders, 1, "one")
	require.NoError(s, s.handle().Write(s.ctx, orders, 2, "two"))
	require.NoError(s, g.Write(s.ctx, orders, 2, "two again"))
}

// paused is a write that is paused between check and commit.
type paused struct {
	reached chan struct{}
	resume  chan struct{}
	result  chan error
}

func pauseWrite(ctx context.Context, g Pauser, resource fencing.Resource, token fencing.Token, value string) *paused {
	p := &paused{reached: make(chan struct{}), resume: make(chan struct{}), result: make(chan error, 1)}
	var once sync.Once
	go func() {
		p.result <- g.WritePaused(ctx, resource, token, value, func() error {
			once.Do(func() {
				close(p.reached)
				<-p.resume
			})
			return nil
		})
	}()
	return p
}

// during runs f while p is paused, and waits for a while whether f completes. It
// returns a function that waits for f's result.
func (p *paused) during(s *scenario, f func() error) func() error {
	select {
	case <-p.reached:
	case err := <-p.result:
		require.FailNow(s, "the write to be paused ended early", "%v", err)
	}
	result := make(chan error, 1)
	completed := make(chan struct{})
	go func() {
		result <- f()
		close(completed)
	}()
	select {
	case <-completed:
	case <-time.After(10 * blockedAfter):
	}
	return func() error { return <-result }
}

// pausedWriter is the case that gates exist for: the final value must be that of
// the larger token.
func pausedWriter(s *scenario, g Pauser) {
	newer := s.handle()
	p := pauseWrite(s.ctx, g, orders, 1, "old")
	wait := p.during(s, func() error { return newer.Write(s.ctx, orders, 2, "new") })
	close(p.resume)
	s.applied(<-p.result)
	require.NoError(s, wait())
	s.holds(g, orders, 2, "new")
}

// pausedAndEntered has a newer holder enter and read while an older writer is
// paused. After Enter has returned, the older write must not be applied any more. The
// older writer has no token, or another handle has raised the mark to its token: it
// does not have to raise the mark, but must lock it nevertheless.
func pausedAndEntered(s *scenario, g Pauser, older fencing.Token) {
	newer := s.handle()
	if older != fencing.None {
		require.NoError(s, newer.Enter(s.ctx, orders, older))
	}
	seen := ""
	p := pauseWrite(s.ctx, g, orders, older, "old")
	wait := p.during(s, func() error {
		if err := newer.Enter(s.ctx, orders, 2); err != nil {
			return err
		}
		var err error
		seen, err = newer.Read(s.ctx, orders)
		return err
	})
	close(p.resume)
	s.applied(<-p.result)
	require.NoError(s, wait())
	s.holds(g, orders, 2, seen)
}

func cancelledInside(s *scenario, g Pauser) {
	require.NoError(s, g.Write(s.ctx, orders, 1, "one"))
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	err := g.WritePaused(ctx, orders, 2, "two", func() error {
		cancel()
		return nil
	})
	s.bothOrNeither(g, err, context.Canceled, 1, "one", 2, "two")
	require.NoError(s, s.handle().Write(s.ctx, orders, 3, "three"), "the cancelled write must not hold a lock")
}

func cancelledWaiting(s *scenario, g Pauser) {
	newer := s.handle()
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	p := pauseWrite(s.ctx, g, orders, 1, "one")
	wait := p.during(s, func() error { return newer.Write(ctx, orders, 2, "two") })
	cancel()
	close(p.resume)
	first, second := <-p.result, wait()
	if first != nil { // the second write did not wait for the first
		s.refused(first, orders, 1, 2)
		s.holds(g, orders, 2, "two")
		return
	}
	s.bothOrNeither(g, second, context.Canceled, 1, "one", 2, "two")
	require.NoError(s, s.handle().Write(s.ctx, orders, 3, "three"), "the cancelled wait must not hold a lock")
}

// bothOrNeither requires that mark and value are both old or both new, and that
// err says which: nil means new, cause means old, ErrUncertain allows either.
func (s *scenario) bothOrNeither(
	g Subject, err, cause error, oldMark fencing.Token, before string, newMark fencing.Token, after string,
) {
	s.Helper()
	mark, readErr := g.Mark(s.ctx, orders)
	require.NoError(s, readErr)
	switch {
	case err == nil, errors.Is(err, storagegate.ErrUncertain) && mark == newMark:
		s.holds(g, orders, newMark, after)
	default:
		if !errors.Is(err, storagegate.ErrUncertain) {
			require.ErrorIs(s, err, cause)
		}
		s.holds(g, orders, oldMark, before)
	}
}

func crash(s *scenario, g Crasher) {
	require.NoError(s, g.Write(s.ctx, orders, 1, "one"))
	g.Crash(s.T, orders, 3, "three")
	survivor := s.handle()
	mark, err := survivor.Mark(s.ctx, orders)
	require.NoError(s, err)
	if mark == 3 {
		s.holds(survivor, orders, 3, "three")
		return
	}
	s.holds(survivor, orders, 1, "one")
	require.NoError(s, survivor.Write(s.ctx, orders, 2, "two"), "the killed writer must not hold a lock")
	s.holds(survivor, orders, 2, "two")
}
