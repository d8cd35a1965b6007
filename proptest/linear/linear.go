// Package linear checks that the operations of clients on guarded data are
// linearizable: a single register behind a fence explains all results, and every
// operation takes effect at one moment between its call and its return.
//
// It does not know leases. A history may be linearizable although two clients
// held the lock at the same time; it shows that such an overlap does no harm.
//
// It also draws histories, with the page on which porcupine shows why one is not linearizable.
//
// It complements package property with a checker that shares no code with this
// project (github.com/anishathalye/porcupine) and uses only what clients observed.
// An operation with unknown outcome stays open until the end: it may take effect at
// any later moment, or never.
//
// Files, in reading order: linear.go, the check; draw.go, the drawing.
package linear

import (
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/proptest/property"
)

// Outcome is the result that the client received.
type Outcome uint8

// The outcomes of an Op.
const (
	Unknown Outcome = iota // it may have taken effect, may still do so, or may not
	Done
	Stale // refused: the mark is above Token
)

// Op is one operation as a client observed it. Call is before the request was sent,
// Return after the answer was received, on one clock for all clients.
type Op struct {
	Client       int
	Resource     fencing.Resource
	Access       property.Access
	Token        fencing.Token
	Value        uint64
	Outcome      Outcome
	Call, Return time.Duration
}

// Operations returns the operations of clients in a history of events, in the order in which they began. The outcome
// of one without an answer is unknown.
func Operations(events []property.Event) (ops []Op) {
	index, clients := map[uint64]int{}, map[string]int{}
	for _, e := range events {
		switch e.Kind {
		case property.Sent:
			if _, known := clients[e.Who]; !known {
				clients[e.Who] = len(clients)
			}
			index[e.Op] = len(ops)
			ops = append(ops, Op{Client: clients[e.Who], Resource: e.Resource, Access: e.Access, Token: e.Token,
				Value: e.Version, Call: e.At})
		case property.Acknowledged, property.Rejected:
			op := &ops[index[e.Op]]
			op.Return, op.Outcome = e.At, Done
			if e.Kind == property.Rejected {
				op.Outcome = Stale
			}
			if op.Access == property.Read {
				op.Value = e.Version
			}
		}
	}
	return ops
}

// First returns the first n operations on each resource, which must be in the order of their calls. The outcome of
// those in progress when the next one begins is unknown.
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
			op.Outcome = Unknown
		}
		first = append(first, op)
	}
	return first
}

// state is a guarded register.
type state struct {
	mark  fencing.Token
	value uint64
}

// ErrNotLinearizable says that no order of the operations explains a history.
var ErrNotLinearizable = errors.New("the history is not linearizable")

// ErrTimeout says that the check ended without a result.
var ErrTimeout = errors.New("linearizability is undecided: the check timed out; check fewer operations per " +
	"resource, or allow more time")

// Check checks a history. On ErrNotLinearizable it writes an HTML page with the
// longest explained parts to picture, unless that is nil.
func Check(history []Op, timeout time.Duration, picture io.Writer) error {
	operations := make([]porcupine.Operation, 0, len(history))
	for _, op := range history {
		if op.Outcome == Unknown && op.Access == property.Read {
			continue // it shows nothing
		}
		end := int64(op.Return)
		if op.Outcome == Unknown {
			end = math.MaxInt64
		}
		operations = append(operations, porcupine.Operation{ClientId: op.Client, Input: op, Call: int64(op.Call),
			Return: end})
	}
	result, info := porcupine.CheckOperationsVerbose(model, operations, timeout)
	switch result {
	case porcupine.Ok:
		return nil
	case porcupine.Unknown:
		return ErrTimeout
	}
	if picture != nil {
		if err := porcupine.Visualize(model, info, picture); err != nil {
			return errors.Join(ErrNotLinearizable, fmt.Errorf("draw the history: %w", err))
		}
	}
	return ErrNotLinearizable
}

// model is an independent implementation of the rule of the gate.
var model = porcupine.Model{
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
	Init: func() any { return state{} },
	Step: func(before, input, _ any) (bool, any) {
		s, op := before.(state), input.(Op)
		if op.Access == property.Read {
			return op.Value == s.value, s
		}
		passes := op.Token >= s.mark
		switch {
		case op.Outcome == Done && !passes || op.Outcome == Stale && passes:
			return false, s
		case !passes:
			return true, s
		}
		s.mark = op.Token
		if op.Access == property.Write {
			s.value = op.Value
		}
		return true, s
	},
	DescribeOperation: func(input, _ any) string {
		op := input.(Op)
		outcome := [...]string{"?", "ok", "stale"}[op.Outcome]
		return fmt.Sprintf("%s(token %d, %d) %s", op.Access, op.Token, op.Value, outcome)
	},
	DescribeState: func(s any) string { return fmt.Sprintf("mark %d, value %d", s.(state).mark, s.(state).value) },
}
