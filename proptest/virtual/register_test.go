package virtual

import (
	"context"
	"errors"
	"sync"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/proptest/property"
	"github.com/leased-project/leased/storagegate/memgate"
)

// registers is the storage: a version for each resource, behind the gate of the
// product. It tells what it does in the order in which it does it.
type registers struct {
	story *story
	mu    sync.Mutex // so that telling and doing are one step
	gate  *memgate.Gate[uint64]
}

func newRegisters(s *story) *registers {
	return &registers{story: s, gate: memgate.New[uint64](fencing.Rule{})}
}

func (r *registers) event(kind property.Kind, name fencing.Resource, token fencing.Token) property.Event {
	return property.Event{Kind: kind, Who: "storage", Resource: name, Token: token}
}

// enter raises the mark.
func (r *registers) enter(name fencing.Resource, token fencing.Token) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	err := r.gate.Enter(context.Background(), name, token)
	if err == nil {
		r.story.tell(r.event(property.Entered, name, token))
	}
	return err
}

// read is the present version.
func (r *registers) read(name fencing.Resource) uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	version, _, err := r.gate.Get(context.Background(), name)
	if err != nil {
		panic(err) // it is memory, and the context never ends
	}
	return version
}

// write puts version seen+1 in the place of whatever is there.
func (r *registers) write(name fencing.Resource, token fencing.Token, op, seen uint64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	err := r.gate.Do(context.Background(), name, token, func(version *uint64) error {
		*version = seen + 1
		return nil
	})
	var stale *fencing.StaleError
	e := r.event(property.Wrote, name, token)
	e.Op, e.Seen, e.Version = op, seen, seen+1
	if errors.As(err, &stale) {
		e.Kind = property.Stale
	}
	r.story.tell(e)
	return err
}

// found tells what is there at the end.
func (r *registers) found(names []fencing.Resource) {
	for _, name := range names {
		e := r.event(property.Found, name, fencing.None)
		e.Version = r.read(name)
		r.story.tell(e)
	}
}
