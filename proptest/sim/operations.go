package sim

import (
	"time"

	"github.com/leased-project/leased/proptest/linear"
)

// operationStarts records the start of an operation on the data. Its outcome is unknown
// until operationEnds.
func (w *World) operationStarts(c *client, kind linear.Kind, a *attempt, value uint64) (note int) {
	if w.record.history == 0 {
		return -1
	}
	w.linear = append(w.linear, linear.Op{Client: c.number, Resource: a.name, Kind: kind, Token: a.token, Value: value, Call: w.now})
	return len(w.linear) - 1
}

// operationEnds records the outcome of an operation.
func (w *World) operationEnds(note int, value uint64, outcome linear.Outcome) {
	if note >= 0 {
		op := &w.linear[note]
		op.Value, op.Outcome, op.Return = value, outcome, w.now
	}
}

// history returns the operations on each lock's data up to some moment. The outcome of
// operations in progress at that moment is unknown.
func (w *World) history() []linear.Op {
	count, until := map[resource]int{}, map[resource]time.Duration{}
	var all []linear.Op
	for _, op := range w.linear {
		if count[op.Resource]++; count[op.Resource] == w.record.history {
			until[op.Resource] = op.Call
		}
	}
	for _, op := range w.linear {
		end, cut := until[op.Resource]
		if cut && op.Call >= end {
			continue
		}
		if op.Outcome != linear.Unknown && cut && op.Return > end {
			op.Outcome = linear.Unknown
			if op.Kind == linear.Read {
				op.Value = 0
			}
		}
		all = append(all, op)
	}
	return all
}
