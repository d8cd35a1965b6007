package virtual

import (
	"context"
	"errors"
	"sync"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/proptest/property"
	"github.com/leased-project/leased/storagegate/memgate"
)

// registers is the storage: a version for each resource behind memgate. It records its
// operations in order.
type registers struct {
	history *history
	mu      sync.Mutex // makes an operation and its record atomic
	gate    *memgate.Gate[uint64]
}

func newRegisters(s *history) *registers {
	return &registers{history: s, gate: memgate.New[uint64](fencing.Rule{})}
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
		r.history.record(r.event(property.Entered, name, token))
	}
	return err
}

// read returns the current version.
func (r *registers) read(name fencing.Resource) uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	version, _, err := r.gate.Get(context.Background(), name)
	if err != nil {
		panic(err) // memory does not fail
	}
	return version
}

// write sets the version to seen+1, whatever it is.
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
	r.history.record(e)
	return err
}

// found records the final versions.
func (r *registers) found(names []fencing.Resource) {
	for _, name := range names {
		e := r.event(property.Found, name, fencing.None)
		e.Version = r.read(name)
		r.history.record(e)
	}
}
