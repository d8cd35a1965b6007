package storagegate

import (
	"cmp"
	"context"
	"errors"
	"sync/atomic"

	"github.com/leased-project/leased/fencing"
)

// Outcome is the decision of a gate about one write.
type Outcome uint8

// The outcomes of a decision.
const (
	// Admitted: the token was admitted and the storage confirmed it. Gates that
	// commit mark and write together (SQL, bbolt, files, objects, memory) count
	// the commit; a failed write and a write with an unknown outcome are not
	// counted. Gates that raise the mark before the write (HTTP, gRPC, Connect,
	// the proxy, Admit in a caller's transaction) count that, even if the write
	// then fails. Redis counts a script whose second or later command failed.
	Admitted Outcome = iota + 1
	// Stale: the token was below the mark.
	Stale
	// Tokenless: the resource is fenced, and the write carried no token.
	Tokenless
	// JumpExceeded: the token was further above the mark than the bound allows.
	JumpExceeded
	// Unsigned: the gate verifies signatures, and the token had no valid one.
	Unsigned
)

var outcomeNames = [...]string{
	Admitted: "admitted", Stale: "stale", Tokenless: "tokenless", JumpExceeded: "jump exceeded", Unsigned: "unsigned",
}

// String returns the name of o for logs and metrics.
func (o Outcome) String() string {
	if int(o) < len(outcomeNames) && outcomeNames[o] != "" {
		return outcomeNames[o]
	}
	return "unknown"
}

// Decision is passed to the audit hooks. Mark is the mark that the token was
// compared with if it was refused, and the token itself if it was admitted.
type Decision struct {
	Resource fencing.Resource
	Token    fencing.Token
	Mark     fencing.Token
	Outcome  Outcome
}

// Counts holds the number of decisions of a gate since it was opened.
type Counts struct {
	Admitted, Stale, Tokenless, JumpExceeded, Unsigned uint64
}

// Monitor counts the decisions of one gate and reports each of them to the
// audit hooks. The zero value has no hook. A gate embeds a Monitor and calls Record
// once for each decision, after the storage has confirmed it.
type Monitor struct {
	hook   func(context.Context, Decision)
	counts [len(outcomeNames)]atomic.Uint64
}

// Audit adds a hook, which is called after those added before. Call it before the gate
// is used. The hook gets the writer's context. It runs on the writer's goroutine, which
// may hold the gate's lock for the resource: it should return quickly and must not use
// the gate.
func (m *Monitor) Audit(hook func(context.Context, Decision)) {
	first := m.hook
	if first == nil {
		m.hook = hook
		return
	}
	m.hook = func(ctx context.Context, d Decision) {
		first(ctx, d)
		hook(ctx, d)
	}
}

// Counts returns the current counters.
func (m *Monitor) Counts() Counts {
	return Counts{
		Admitted:     m.counts[Admitted].Load(),
		Stale:        m.counts[Stale].Load(),
		Tokenless:    m.counts[Tokenless].Load(),
		JumpExceeded: m.counts[JumpExceeded].Load(),
		Unsigned:     m.counts[Unsigned].Load(),
	}
}

// Record counts and reports the decision that err stands for: nil is an
// admission; *fencing.StaleError, *fencing.JumpError and fencing.ErrUnsigned are
// refusals. Any other error, such as the refusal of another resource, is not a decision
// and is not counted. Record returns err.
func (m *Monitor) Record(ctx context.Context, resource fencing.Resource, token fencing.Token, err error) error {
	if err == nil { // a separate case, so that an admission allocates nothing
		m.report(ctx, Decision{Resource: resource, Token: token, Mark: token, Outcome: Admitted})
		return nil
	}
	var stale *fencing.StaleError
	var jump *fencing.JumpError
	switch {
	case errors.As(err, &stale) && cmp.Or(stale.Resource, resource) != resource,
		errors.As(err, &jump) && cmp.Or(jump.Resource, resource) != resource:
		// The write used another gate, which has counted its refusal.
	case stale != nil && stale.Token == fencing.None:
		m.report(ctx, Decision{Resource: resource, Token: token, Mark: stale.Mark, Outcome: Tokenless})
	case stale != nil:
		m.report(ctx, Decision{Resource: resource, Token: token, Mark: stale.Mark, Outcome: Stale})
	case jump != nil:
		m.report(ctx, Decision{Resource: resource, Token: token, Mark: jump.Mark, Outcome: JumpExceeded})
	case errors.Is(err, fencing.ErrUnsigned):
		m.report(ctx, Decision{Resource: resource, Token: token, Outcome: Unsigned})
	}
	return err
}

func (m *Monitor) report(ctx context.Context, d Decision) {
	m.counts[d.Outcome].Add(1)
	if m.hook != nil {
		m.hook(ctx, d)
	}
}
