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

var errWrite = errors.New("the write gave up")

func failedWrite(s *stage, g Pauser) {
	fail := func() error { return errWrite }
	require.ErrorIs(s, g.WriteThrough(s.ctx, door, 3, "lost", fail), errWrite)
	s.holds(g, door, fencing.None, "")
	require.NoError(s, g.Write(s.ctx, door, 1, "one"), "the failed write must not have fenced the resource")
	require.ErrorIs(s, g.WriteThrough(s.ctx, door, 3, "lost", fail), errWrite)
	s.holds(g, door, 1, "one")
	require.Equal(s, storagegate.Counts{Admitted: 1}, g.Counts(), "a write that failed is no decision")
	require.NoError(s, s.handle().Write(s.ctx, door, 2, "two"), "and must not hold a lock")
	s.refused(g.WriteThrough(s.ctx, door, 1, "stale", fail), door, 1, 2)
}

func panickingWrite(s *stage, g Pauser) {
	require.NoError(s, g.Write(s.ctx, door, 1, "one"))
	require.PanicsWithValue(s, "in the write", func() {
		_ = g.WriteThrough(s.ctx, door, 3, "lost", func() error { panic("in the write") })
	})
	s.holds(g, door, 1, "one")
	require.NoError(s, s.handle().Write(s.ctx, door, 2, "two"))
	require.NoError(s, g.Write(s.ctx, door, 2, "two again"))
}

// paused is a write that stands still between check and commit.
type paused struct {
	reached chan struct{}
	resume  chan struct{}
	result  chan error
}

func pauseWrite(ctx context.Context, g Pauser, resource fencing.Resource, token fencing.Token, value string) *paused {
	p := &paused{reached: make(chan struct{}), resume: make(chan struct{}), result: make(chan error, 1)}
	var once sync.Once
	go func() {
		p.result <- g.WriteThrough(ctx, resource, token, value, func() error {
			once.Do(func() {
				close(p.reached)
				<-p.resume
			})
			return nil
		})
	}()
	return p
}

// during runs f while p stands still, and gives it time to get through if
// nothing holds it back. It returns a function that waits for f's result.
func (p *paused) during(s *stage, f func() error) func() error {
	select {
	case <-p.reached:
	case err := <-p.result:
		require.FailNow(s, "the write to be paused ended early", "%v", err)
	}
	result := make(chan error, 1)
	through := make(chan struct{})
	go func() {
		result <- f()
		close(through)
	}()
	select {
	case <-through:
	case <-time.After(10 * grace):
	}
	return func() error { return <-result }
}

// pausedWriter is the case that gates exist for: whoever holds the larger token
// must have the last word, wherever the older one stood still.
func pausedWriter(s *stage, g Pauser) {
	newer := s.handle()
	p := pauseWrite(s.ctx, g, door, 1, "old")
	wait := p.during(s, func() error { return newer.Write(s.ctx, door, 2, "new") })
	close(p.resume)
	s.settled(<-p.result)
	require.NoError(s, wait())
	s.holds(g, door, 2, "new")
}

// pausedEqual is a writer that finds the mark at its own token, because another
// handle has raised it, and so has no reason to write it. It must hold it all
// the same.
func pausedEqual(s *stage, g Pauser) {
	require.NoError(s, s.handle().Enter(s.ctx, door, 1))
	pausedAndEntered(s, g, 1)
}

// pausedTokenless is a writer without a token that meets the first fence.
func pausedTokenless(s *stage, g Pauser) { pausedAndEntered(s, g, fencing.None) }

// pausedAndEntered lets a newer holder enter and read while an older writer
// stands still. Once Enter has returned, the older write must have landed
// already, or never land.
func pausedAndEntered(s *stage, g Pauser, older fencing.Token) {
	newer := s.handle()
	seen := ""
	p := pauseWrite(s.ctx, g, door, older, "old")
	wait := p.during(s, func() error {
		if err := newer.Enter(s.ctx, door, 2); err != nil {
			return err
		}
		var err error
		seen, err = newer.Read(s.ctx, door)
		return err
	})
	close(p.resume)
	s.settled(<-p.result)
	require.NoError(s, wait())
	s.holds(g, door, 2, seen)
}

func cancelledInside(s *stage, g Pauser) {
	require.NoError(s, g.Write(s.ctx, door, 1, "one"))
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	err := g.WriteThrough(ctx, door, 2, "two", func() error {
		cancel()
		return nil
	})
	s.together(g, err, context.Canceled, 1, "one", 2, "two")
	require.NoError(s, s.handle().Write(s.ctx, door, 3, "three"), "the cancelled write must not hold a lock")
}

func cancelledWaiting(s *stage, g Pauser) {
	newer := s.handle()
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	p := pauseWrite(s.ctx, g, door, 1, "one")
	wait := p.during(s, func() error { return newer.Write(ctx, door, 2, "two") })
	cancel()
	close(p.resume)
	first, second := <-p.result, wait()
	if first != nil { // the second write did not have to wait
		s.refused(first, door, 1, 2)
		s.holds(g, door, 2, "two")
		return
	}
	s.together(g, second, context.Canceled, 1, "one", 2, "two")
	require.NoError(s, s.handle().Write(s.ctx, door, 3, "three"), "the cancelled wait must not hold a lock")
}

// together requires that mark and value are both old or both new, and that err
// says which: nil is new, ErrUncertain is either, cause is old.
func (s *stage) together(g Subject, err, cause error, oldMark fencing.Token, before string, newMark fencing.Token, after string) {
	s.Helper()
	mark, readErr := g.Mark(s.ctx, door)
	require.NoError(s, readErr)
	switch {
	case err == nil, errors.Is(err, storagegate.ErrUncertain) && mark == newMark:
		s.holds(g, door, newMark, after)
	default:
		if !errors.Is(err, storagegate.ErrUncertain) {
			require.ErrorIs(s, err, cause)
		}
		s.holds(g, door, oldMark, before)
	}
}

func crash(s *stage, g Crasher) {
	require.NoError(s, g.Write(s.ctx, door, 1, "one"))
	g.Crash(s.T, door, 3, "three")
	survivor := s.handle()
	mark, err := survivor.Mark(s.ctx, door)
	require.NoError(s, err)
	if mark == 3 {
		s.holds(survivor, door, 3, "three")
		return
	}
	s.holds(survivor, door, 1, "one")
	require.NoError(s, survivor.Write(s.ctx, door, 2, "two"), "the dead writer must not hold a lock")
	s.holds(survivor, door, 2, "two")
}
