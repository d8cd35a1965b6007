package property

import (
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/leased-project/leased/fencing"
)

// Op is one operation on guarded data as a client observed it. Call is before the request was sent, Return after the
// answer was received, on one clock for all clients.
type Op struct {
	Client       int
	Resource     fencing.Resource
	Access       Access
	Token        fencing.Token
	Value        uint64
	Answer       Kind // Acknowledged or Rejected; 0 if unknown: it may have taken effect, may still do so, or may not
	Call, Return time.Duration
}

// Operations returns the operations of clients in a history of events, in the order in which they began. The answer of
// one without an event for it is unknown.
func Operations(events []Event) (ops []Op) {
	index, clients := map[uint64]int{}, map[string]int{}
	for _, e := range events {
		switch e.Kind {
		case Sent:
			if _, known := clients[e.Who]; !known {
				clients[e.Who] = len(clients)
			}
			index[e.Op] = len(ops)
			ops = append(ops, Op{Client: clients[e.Who], Resource: e.Resource, Access: e.Access, Token: e.Token,
				Value: e.Version, Call: e.At})
		case Acknowledged, Rejected:
			op := &ops[index[e.Op]]
			op.Return, op.Answer = e.At, e.Kind
			if op.Access == Read {
				op.Value = e.Version
			}
		}
	}
	return ops
}

// First returns the first n operations on each resource, which must be in the order of their calls. The answers of
// those in progress when the next one begins are unknown.
func First(ops []Op, n int) (first []Op) {
	count, end := map[fencing.Resource]int{}, map[fencing.Resource]time.Duration{}
	for _, op := range ops {
		if count[op.Resource]++; count[op.Resource] == n+1 {
			end[op.Resource] = op.Call
		}
	}
	for _, op := range ops {
		until, cut := end[op.Resource]
		if cut && op.Call >= until {
			continue
		}
		if cut && op.Return > until {
			op.Answer = 0
		}
		first = append(first, op)
	}
	return first
}

// ErrNotLinearizable says that no order of the operations explains a history.
var ErrNotLinearizable = errors.New("the history is not linearizable")

// ErrTimeout says that the check ended without a result.
var ErrTimeout = errors.New("linearizability is undecided: the check timed out; check fewer operations per " +
	"resource, or allow more time")

// CheckLinearizable checks that the operations of clients on guarded data are linearizable: a single register behind a
// fence explains all answers, and every operation takes effect at one moment between its call and its return. One whose
// answer is unknown stays open until the end: it may take effect at any later moment, or never. On ErrNotLinearizable
// it writes an HTML page with the longest explained parts to picture, unless that is nil.
//
// It complements a Checker: it shares no code with this project (github.com/anishathalye/porcupine), uses only what
// clients observed, and does not know leases. A history may be linearizable although two clients held the lock at the
// same time; it shows that such an overlap does no harm.
func CheckLinearizable(history []Op, timeout time.Duration, picture io.Writer) error {
	operations := make([]porcupine.Operation, 0, len(history))
	for _, op := range history {
		if op.Answer == 0 && op.Access == Read {
			continue // it shows nothing
		}
		end := int64(op.Return)
		if op.Answer == 0 {
			end = math.MaxInt64
		}
		operations = append(operations, porcupine.Operation{ClientId: op.Client, Input: op, Call: int64(op.Call),
			Return: end})
	}
	result, info := porcupine.CheckOperationsVerbose(guarded, operations, timeout)
	switch result {
	case porcupine.Ok:
		return nil
	case porcupine.Unknown:
		return ErrTimeout
	}
	if picture != nil {
		if err := porcupine.Visualize(guarded, info, picture); err != nil {
			return errors.Join(ErrNotLinearizable, fmt.Errorf("draw the history: %w", err))
		}
	}
	return ErrNotLinearizable
}

// register is the state of guarded data.
type register struct {
	mark  fencing.Token
	value uint64
}

// guarded is an independent implementation of the rule of the gate.
var guarded = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		index := map[fencing.Resource]int{}
		var parts [][]porcupine.Operation
		for _, operation := range history {
			name := operation.Input.(Op).Resource
			i, ok := index[name]
			if !ok {
				i = len(parts)
				index[name], parts = i, append(parts, nil)
			}
			parts[i] = append(parts[i], operation)
		}
		return parts
	},
	Init: func() any { return register{} },
	Step: func(before, input, _ any) (bool, any) {
		r, op := before.(register), input.(Op)
		if op.Access == Read {
			return op.Value == r.value, r
		}
		passes := op.Token >= r.mark
		switch {
		case op.Answer == Acknowledged && !passes || op.Answer == Rejected && passes:
			return false, r
		case !passes:
			return true, r
		}
		r.mark = op.Token
		if op.Access == Write {
			r.value = op.Value
		}
		return true, r
	},
	DescribeOperation: func(input, _ any) string {
		op := input.(Op)
		outcome := map[Kind]string{0: "?", Acknowledged: "ok", Rejected: "stale"}[op.Answer]
		return fmt.Sprintf("%s(token %d, %d) %s", op.Access, op.Token, op.Value, outcome)
	},
	DescribeState: func(r any) string { return fmt.Sprintf("mark %d, value %d", r.(register).mark, r.(register).value) },
}
