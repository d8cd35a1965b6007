// Package linear checks that what clients saw of guarded data can be explained
// by one register behind one fence, each operation taking effect at one moment
// between its call and its return.
//
// What it does not give: it knows nothing of leases. A history may be
// linearizable although two clients believed to hold the lock; that this does
// no harm is what it shows.
//
// It is the second opinion beside package promise, by a checker that shares no
// code with us (github.com/anishathalye/porcupine), and from what clients saw
// alone. An operation whose outcome the client does not know stays open to the
// end: it may take effect at any later moment, or never.
package linear

import (
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/leased-project/leased/fencing"
)

// Kind is what an operation does.
type Kind uint8

// The kinds of an Op.
const (
	Enter Kind = iota // raise the mark to Token
	Write             // set the value to Value, under Token
	Read              // find Value
)

// Outcome is what the client was told.
type Outcome uint8

// The outcomes of an Op.
const (
	Unknown Outcome = iota // it may take effect, or has, or will not
	Done
	Stale // refused: the mark is above Token
)

// Op is one operation as a client saw it. Call is before it was sent, Return
// after it was answered, on one clock for all clients.
type Op struct {
	Client       int
	Resource     fencing.Resource
	Kind         Kind
	Token        fencing.Token
	Value        uint64
	Outcome      Outcome
	Call, Return time.Duration
}

// state is a guarded register.
type state struct {
	mark  fencing.Token
	value uint64
}

// ErrNot says that a history has no explanation.
var ErrNot = errors.New("the history is not linearizable")

// ErrTimeout says that none was found in time, nor that there is none.
var ErrTimeout = errors.New("not decided in time: check fewer operations a resource, or give more time")

// Check looks for an explanation of a history. On ErrNot it draws what it found
// to picture, as a page of HTML, unless that is nil.
func Check(history []Op, timeout time.Duration, picture io.Writer) error {
	operations := make([]porcupine.Operation, 0, len(history))
	for _, op := range history {
		if op.Outcome == Unknown && op.Kind == Read {
			continue // it says nothing
		}
		end := int64(op.Return)
		if op.Outcome == Unknown {
			end = math.MaxInt64
		}
		operations = append(operations, porcupine.Operation{ClientId: op.Client, Input: op, Call: int64(op.Call), Return: end})
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
			return errors.Join(ErrNot, fmt.Errorf("draw it: %w", err))
		}
	}
	return ErrNot
}

// model is the rule of the gate, written down a second time.
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
		if op.Kind == Read {
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
		if op.Kind == Write {
			s.value = op.Value
		}
		return true, s
	},
	DescribeOperation: func(input, _ any) string {
		op := input.(Op)
		name := [...]string{"enter", "write", "read"}[op.Kind]
		outcome := [...]string{"?", "ok", "stale"}[op.Outcome]
		return fmt.Sprintf("%s(token %d, %d) %s", name, op.Token, op.Value, outcome)
	},
	DescribeState: func(s any) string { return fmt.Sprintf("mark %d, value %d", s.(state).mark, s.(state).value) },
}
