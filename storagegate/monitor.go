package storagegate

import (
	"errors"
	"sync/atomic"

	"github.com/leased-project/leased/fencing"
)

// Outcome is what a gate decided about one write.
type Outcome uint8

// The outcomes of a decision.
const (
	// Admitted: the token passed the fence, and the storage confirmed it. Gates
	// that raise the mark together with the write (SQL, bbolt, files, objects,
	// memory) count when that is committed: a write that failed, and one whose
	// outcome is unknown, is no decision. Gates that raise it before (HTTP, gRPC,
	// Connect, the proxy, Admit in a caller's transaction) count then, whatever
	// becomes of the write; Redis does if a later command of several fails.
	Admitted Outcome = iota + 1
	// Stale: the token was below the mark.
	Stale
	// Tokenless: the resource is fenced, and the write carried no token.
	Tokenless
	// JumpExceeded: the token was further above the mark than the bound allows.
	JumpExceeded
)

var outcomeNames = [...]string{Admitted: "admitted", Stale: "stale", Tokenless: "tokenless", JumpExceeded: "jump exceeded"}

// String is the word for o in logs and metrics.
func (o Outcome) String() string {
	if int(o) < len(outcomeNames) && outcomeNames[o] != "" {
		return outcomeNames[o]
	}
	return "unknown"
}

// Decision is what an audit hook is told. Mark is what the gate held against
// the token when it refused, and the token itself when it admitted.
type Decision struct {
	Resource fencing.Resource
	Token    fencing.Token
	Mark     fencing.Token
	Outcome  Outcome
}

// Counts are the decisions of a gate since it was opened.
type Counts struct {
	Admitted, Stale, Tokenless, JumpExceeded uint64
}

// Monitor counts the decisions of one gate and reports each to an audit hook.
// The zero value has no hook. A gate embeds one and calls Record once for each
// decision, after the storage has confirmed it.
type Monitor struct {
	hook   func(Decision)
	counts [len(outcomeNames)]atomic.Uint64
}

// Audit sets the hook. It must be called before the gate is used. The hook runs
// on the writer's goroutine: it should return quickly.
func (m *Monitor) Audit(hook func(Decision)) { m.hook = hook }

// Counts reads the counters.
func (m *Monitor) Counts() Counts {
	return Counts{
		Admitted:     m.counts[Admitted].Load(),
		Stale:        m.counts[Stale].Load(),
		Tokenless:    m.counts[Tokenless].Load(),
		JumpExceeded: m.counts[JumpExceeded].Load(),
	}
}

// Record notes the decision that err stands for: nil is an admission, a
// *fencing.StaleError or *fencing.JumpError a refusal. Any other error is no
// decision and is not counted. It returns err, so that a gate can end with it.
func (m *Monitor) Record(resource fencing.Resource, token fencing.Token, err error) error {
	if err == nil { // apart, so that an admission allocates nothing
		m.note(Decision{Resource: resource, Token: token, Mark: token, Outcome: Admitted})
		return nil
	}
	var stale *fencing.StaleError
	var jump *fencing.JumpError
	switch {
	case errors.As(err, &stale) && stale.Token == fencing.None:
		m.note(Decision{Resource: resource, Token: token, Mark: stale.Mark, Outcome: Tokenless})
	case stale != nil:
		m.note(Decision{Resource: resource, Token: token, Mark: stale.Mark, Outcome: Stale})
	case errors.As(err, &jump):
		m.note(Decision{Resource: resource, Token: token, Mark: jump.Mark, Outcome: JumpExceeded})
	}
	return err
}

func (m *Monitor) note(d Decision) {
	m.counts[d.Outcome].Add(1)
	if m.hook != nil {
		m.hook(d)
	}
}
