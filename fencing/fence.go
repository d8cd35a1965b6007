package fencing

// Fence keeps the marks of many resources in memory and applies a Rule to them.
// All methods may be called concurrently. The zero value has no bound on the
// jump and is ready to use; a Fence must not be copied after first use.
//
// Invariants:
//  1. a mark is never lowered and never deleted;
//  2. a mark rises only to a token that the Rule has admitted.
//
// A Fence is as durable as the process. To guard data, call it inside the
// critical section that also makes the write.
type Fence struct {
	rule  Rule
	marks marks
}

// NewFence returns an empty Fence that applies rule.
func NewFence(rule Rule) *Fence { return &Fence{rule: rule} }

// Admit lets a write with this token pass and raises the mark to it, or returns
// why not: an error matching ErrStale, ErrJump, ErrInvalidToken or
// ErrInvalidResource. A refusal changes nothing.
func (f *Fence) Admit(resource Resource, token Token) error {
	mark := f.marks.find(resource)
	if mark == nil {
		if err := resource.Validate(); err != nil {
			return err
		}
		if err := f.rule.Admit(resource, None, token); err != nil || token == None {
			return err
		}
		mark = f.marks.add(resource)
	}
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
// what Admit refuses, and a missing token even on a resource never fenced.
func (f *Fence) Enter(resource Resource, token Token) error {
	if token == None {
		return f.rule.Enter(resource, f.Mark(resource), token)
	}
	return f.Admit(resource, token)
}

// Mark is the newest token admitted for the resource, None if there is none.
func (f *Fence) Mark(resource Resource) Token {
	if mark := f.marks.find(resource); mark != nil {
		return Token(mark.token.Load())
	}
	return None
}
