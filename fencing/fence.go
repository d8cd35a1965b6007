package fencing

import (
	"sync"
	"sync/atomic"
)

// Fence keeps the marks of many resources in memory and applies a Rule to them.
// All methods are safe for concurrent use. The zero value is ready to use. A Fence
// must not be copied after first use.
//
// Invariants:
//  1. a mark is never lowered and never deleted;
//  2. a mark is raised only to a token that the Rule has admitted.
//
// The marks are lost when the process ends. To protect data, call the Fence in
// the critical section that writes the data.
type Fence struct {
	rule  Rule
	marks sync.Map // Resource to *mark; marks are never removed
}

// mark is the newest token admitted for a resource. It fills a cache line, so
// that raising it does not slow down cores that raise other marks.
type mark struct {
	token atomic.Uint64
	_     [56]byte
}

// NewFence returns an empty Fence that applies rule.
func NewFence(rule Rule) *Fence { return &Fence{rule: rule} }

// Admit admits a write with this token and raises the mark to it. It refuses
// with an error matching ErrStale, ErrJump, ErrInvalidToken or
// ErrInvalidResource, and then changes nothing.
func (f *Fence) Admit(resource Resource, token Token) error {
	found, ok := f.marks.Load(resource)
	if !ok {
		if err := resource.Validate(); err != nil {
			return err
		}
		if err := f.rule.Admit(resource, None, token); err != nil || token == None {
			return err
		}
		found, _ = f.marks.LoadOrStore(resource, new(mark))
	}
	mark := found.(*mark)
	for {
		old := mark.token.Load()
		if err := f.rule.Admit(resource, Token(old), token); err != nil {
			return err
		}
		if Token(old) == token || mark.token.CompareAndSwap(old, uint64(token)) {
			return nil
		}
	}
}

// Enter raises the mark to token before the holder's first read. It refuses
// what Admit refuses, and always refuses a missing token.
func (f *Fence) Enter(resource Resource, token Token) error {
	if token == None {
		return f.rule.Enter(resource, f.Mark(resource), token)
	}
	return f.Admit(resource, token)
}

// Mark returns the newest token admitted for the resource, or None.
func (f *Fence) Mark(resource Resource) Token {
	if found, ok := f.marks.Load(resource); ok {
		return Token(found.(*mark).token.Load())
	}
	return None
}
