package sim

import (
	"errors"
	"fmt"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/proptest/property"
)

// storage is the data behind a production fence. One task is one atomic step.
type storage struct {
	*process
	w     *World
	fence *fencing.Fence
	data  map[fencing.Resource]*register
}

// register is guarded data with a version.
type register struct {
	version uint64
	value   uint64
}

func newStorage(w *World) *storage {
	s := &storage{process: w.newProcess("storage"), w: w, data: map[fencing.Resource]*register{},
		fence: fencing.NewFence(fencing.Rule{})}
	for _, name := range w.locks {
		s.data[name] = &register{}
	}
	return s
}

// enter raises the mark before a holder reads.
func (s *storage) enter(name fencing.Resource, token fencing.Token) bool {
	if s.w.plan.Flaws.NoEnter {
		return true // the fence is not used
	}
	return s.admit(property.Event{Kind: property.Entered, Resource: name, Token: token}, s.fence.Enter(name, token))
}

// admit records the decision of the fence.
func (s *storage) admit(e property.Event, err error) bool {
	e.Who = s.name
	var stale *fencing.StaleError
	switch {
	case err == nil:
		if e.Kind != 0 {
			s.w.emit(e)
		}
		return true
	case errors.As(err, &stale):
		e.Kind = property.Stale
		s.w.emit(e)
		return false
	}
	panic(fmt.Errorf("gate at mark %d: %w", s.fence.Mark(e.Resource), err)) // no token jumps this far
}

// write checks the token and writes the number of the operation, in one step.
func (s *storage) write(name fencing.Resource, token fencing.Token, op, seen uint64, answer func(applied bool)) {
	e := property.Event{Who: s.name, Kind: property.Wrote, Resource: name, Token: token, Op: op, Seen: seen}
	if !s.admit(property.Event{Resource: name, Token: token, Op: op}, s.fence.Admit(name, token)) {
		answer(false)
		return
	}
	apply := func() {
		r := s.data[name]
		r.version++
		if !s.w.plan.Flaws.LosesValues || op%7 != 0 {
			r.value = op
		}
		e.Version = r.version
		s.w.emit(e)
		answer(true)
	}
	if s.w.plan.Flaws.TornGate { // check and write are two steps
		s.w.timer(s.process, s.w.random(300*time.Millisecond), apply)
		return
	}
	apply()
}
