package quorum

import (
	"slices"

	"github.com/leased-project/leased/fencing"
)

// Report is what a node says of itself. The zero Report is no answer.
type Report struct {
	Known bool // it answered
	Data  bool // it has counters; a node without them may not vote
	// Doubted: it has been restarted and says that it has lost nothing. It may not
	// vote either.
	Doubted bool
	// Believed: it has its vote by the word of nodes that were restarted, since
	// there was no majority that was not.
	Believed bool
	Epoch    uint64
	Max      fencing.Token // the largest token it ever accepted
}

// EpochOf is the largest epoch that a new attempt may carry: one that a majority
// of all nodes, each with data, has reached. The second result is the largest
// epoch that any node has.
//
// An epoch that only a few nodes have reached must not be used yet. Someone who
// brings an emptied node back chooses an epoch above those of some majority; a
// vote in an epoch that this majority has not heard of would survive in the
// books of the voter and be forgotten by the node.
func EpochOf(reports []Report) (usable, largest uint64) {
	for _, r := range reports {
		if !r.Known {
			continue
		}
		largest = max(largest, r.Epoch)
		if reached(reports, r.Epoch) >= Size(len(reports)) {
			usable = max(usable, r.Epoch)
		}
	}
	return usable, largest
}

// reached counts the nodes with data that are in this epoch or a later one.
func reached(reports []Report, epoch uint64) int {
	n := 0
	for _, r := range reports {
		if r.Known && r.Data && r.Epoch >= epoch {
			n++
		}
	}
	return n
}

// Believe is how reports are read by who brings a node back. A node that says it
// has lost nothing in a restart may be wrong: an old data folder was put back, or
// its append-only file was switched off under way. So it is doubted, and comes
// back like one that was emptied, as long as there may be a majority that was not
// restarted: those that do not answer may belong to it. Where there is none, as
// after a power cut, its word is all there is, and it counts as having data. The
// first that come back so are not such a majority for the rest.
func Believe(reports []Report) (read []Report, believed bool) {
	others := 0
	for _, r := range reports {
		if !r.Known || r.Data && !r.Believed {
			others++
		}
	}
	if reached(reports, 0) >= Size(len(reports)) || others >= Size(len(reports)) {
		return reports, false
	}
	read = slices.Clone(reports)
	for i := range read {
		read[i].Data = read[i].Data || read[i].Doubted
	}
	return read, true
}

// PlanRejoin is the epoch in which an emptied node may come back: above every
// epoch seen, by a majority that has data. The reports must have been asked for
// after the join nonce was put on the node. With too few nodes that have data
// ok is false: nothing is safe to do without an operator.
func PlanRejoin(reports []Report) (epoch uint64, ok bool) {
	_, largest := EpochOf(reports)
	return largest + 1, reached(reports, 0) >= Size(len(reports))
}

// Floor is the value that every later acceptance of the node must
// exceed: the largest token of a majority that has moved to the epoch, as they
// answered when they moved. What was seen before is not needed, but may be more,
// where a node that knows it was restarted.
func Floor(seen, prepared []Report, epoch uint64) (floor fencing.Token, ok bool) {
	for _, r := range seen {
		floor = max(floor, r.Max)
	}
	for _, r := range prepared {
		if r.Known && r.Data && r.Epoch == epoch {
			floor = max(floor, r.Max)
		}
	}
	return floor, reached(prepared, epoch) >= Size(len(prepared))
}
