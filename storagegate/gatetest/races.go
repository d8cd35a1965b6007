package gatetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
)

// holder enters, reads, and writes back the value with its letter appended. Each
// step waits for the schedule.
type holder struct {
	subject  Subject
	resource fencing.Resource
	token    fencing.Token
	letter   string

	steps    chan struct{} // the schedule allows one more step
	acks     chan struct{} // a step is complete
	finished chan struct{}
	pending  int   // steps allowed and not yet complete
	err      error // of the first failed step
}

func newHolder(subject Subject, resource fencing.Resource, token fencing.Token, letter string) *holder {
	return &holder{
		subject: subject, resource: resource, token: token, letter: letter,
		steps: make(chan struct{}, 4), acks: make(chan struct{}, 4), finished: make(chan struct{}),
	}
}

func (h *holder) run(ctx context.Context) {
	defer close(h.finished)
	<-h.steps
	if h.err = h.subject.Enter(ctx, h.resource, h.token); h.err != nil {
		return
	}
	h.acks <- struct{}{}
	<-h.steps
	value, err := h.subject.Read(ctx, h.resource)
	if h.err = err; err != nil {
		return
	}
	h.acks <- struct{}{}
	<-h.steps
	pauser, ok := h.subject.(Pauser)
	if !ok {
		h.err = h.subject.Write(ctx, h.resource, h.token, value+h.letter)
		return
	}
	var once sync.Once // a retry must not wait for a step that the schedule does not have
	h.err = pauser.WritePaused(ctx, h.resource, h.token, value+h.letter, func() error {
		once.Do(func() {
			h.acks <- struct{}{}
			<-h.steps
		})
		return nil
	})
}

// step allows one more step and waits until it is complete or seems to be
// blocked by the other holder. A blocked step completes later.
func (h *holder) step() {
	h.steps <- struct{}{}
	h.pending++
	blocked := time.NewTimer(blockedAfter)
	defer blocked.Stop()
	for h.pending > 0 {
		select {
		case <-h.acks:
			h.pending--
		case <-h.finished:
			return
		case <-blocked.C:
			return
		}
	}
}

// interleavings runs a read-modify-write of an older and of a newer holder in
// every order of their steps. The newer holder must never be refused, and must
// never overwrite a value that it has not read.
func interleavings(s *scenario) {
	a, b := s.handle(), s.handle()
	steps := 3
	if _, ok := a.(Pauser); ok {
		steps = 4
	}
	for i, schedule := range schedules(steps, steps) {
		resource := fencing.Resource(fmt.Sprintf("schedule/%d", i))
		older, newer := newHolder(a, resource, 1, "A"), newHolder(b, resource, 2, "B")
		go older.run(s.ctx)
		go newer.run(s.ctx)
		for _, who := range schedule {
			if who == 'A' {
				older.step()
			} else {
				newer.step()
			}
		}
		<-older.finished
		<-newer.finished
		require.NoError(s, newer.err, "%s: B has the newest token", schedule)
		want := "B"
		if s.applied(older.err) {
			want = "AB"
		}
		value, err := b.Read(s.ctx, resource)
		require.NoError(s, err)
		require.Equal(s, want, value, "%s: A's write: %v", schedule, older.err)
		s.holds(a, resource, 2, want)
	}
}

// schedules returns every interleaving of a times "A" and b times "B".
func schedules(a, b int) []string {
	if a == 0 || b == 0 {
		return []string{strings.Repeat("A", a) + strings.Repeat("B", b)}
	}
	var all []string
	for _, rest := range schedules(a-1, b) {
		all = append(all, "A"+rest)
	}
	for _, rest := range schedules(a, b-1) {
		all = append(all, "B"+rest)
	}
	return all
}

// together runs f(0) to f(n-1) at once and requires that none returns an error.
func (s *scenario) together(n int, f func(i int) error) {
	s.Helper()
	errs := make([]error, n)
	start := make(chan struct{})
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			<-start
			errs[i] = f(i)
		})
	}
	close(start)
	all.Wait()
	require.NoError(s, errors.Join(errs...))
}

// unlessStale returns err, or nil if it is the refusal of an older holder.
func unlessStale(err error) error {
	if errors.Is(err, fencing.ErrStale) {
		return nil
	}
	return err
}

// firstUse has many holders write at once to a resource without a mark.
func firstUse(s *scenario) {
	const holders, rounds = 16, 5
	handles := []Subject{s.handle(), s.handle()}
	for round := range rounds {
		resource := fencing.Resource(fmt.Sprintf("new/%d", round))
		s.together(holders, func(i int) error {
			token := fencing.Token(i + 1)
			err := handles[i%2].Write(s.ctx, resource, token, token.String())
			if token == holders {
				return err // the newest holder must not be refused
			}
			return unlessStale(err)
		})
		s.holds(handles[0], resource, holders, fmt.Sprint(holders))
	}
}

// noLostUpdate runs several holders at once, each of which appends to the value.
// The final value must contain every write that was applied.
func noLostUpdate(s *scenario) {
	const holders, writes = 12, 4
	handles := []Subject{s.handle(), s.handle(), s.handle()}
	applied := make([]int, holders)
	s.together(holders, func(i int) error {
		g, token := handles[i%len(handles)], fencing.Token(i+1)
		if err := g.Enter(s.ctx, orders, token); err != nil {
			return unlessStale(err)
		}
		for range writes {
			value, err := g.Read(s.ctx, orders)
			if err == nil {
				err = g.Write(s.ctx, orders, token, value+token.String()+" ")
			}
			if err != nil {
				return unlessStale(err)
			}
			applied[i]++
		}
		return nil
	})
	var want strings.Builder
	for i, count := range applied {
		want.WriteString(strings.Repeat(fmt.Sprint(i+1)+" ", count))
	}
	require.Equal(s, writes, applied[holders-1], "the newest holder must not be refused")
	s.holds(handles[0], orders, holders, want.String())
}

// marksOnlyRise reads the mark repeatedly while older and newer holders write and
// enter.
func marksOnlyRise(s *scenario) {
	const writers, writes = 6, 30
	a, b := s.handle(), s.handle()
	var finished atomic.Int32
	s.together(writers+1, func(w int) error {
		if w == writers {
			last := fencing.None
			for finished.Load() < writers {
				mark, err := b.Mark(s.ctx, orders)
				if err == nil && mark < last {
					err = fmt.Errorf("the mark went from %d to %d", last, mark)
				}
				if err != nil {
					return err
				}
				last = mark
			}
			return nil
		}
		defer finished.Add(1)
		for i := range writes {
			token := fencing.Token(1 + (i*7+w*31)%(writers*writes))
			err := a.Write(s.ctx, orders, token, token.String())
			if err == nil && i%3 == 0 {
				err = b.Enter(s.ctx, orders, token)
			}
			if unlessStale(err) != nil {
				return err
			}
		}
		return nil
	})
	mark, err := a.Mark(s.ctx, orders)
	require.NoError(s, err)
	s.holds(b, orders, mark, mark.String())
}
