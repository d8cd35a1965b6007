package redlock

import (
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/redlockadapter/quorum"
)

// lose has a node lose its data, in one way or another, unless that would leave no majority with data.
func (w *World) lose(node int, how func(*Column)) bool {
	empty := 0
	for _, c := range w.columns() {
		if !c.Data {
			empty++
		}
	}
	if w.Losses == 0 || !w.Columns[node].Data || empty+1 > int(w.Nodes)-quorum.Size(int(w.Nodes)) {
		return false
	}
	w.Losses--
	how(&w.Columns[node])
	return true
}

// restart is a restart that loses nothing. Any number of nodes may have one.
func (w *World) restart(node int) bool {
	if w.Restarts == 0 || !w.Columns[node].Data {
		return false
	}
	w.Restarts--
	w.Columns[node].doubt()
	return true
}

// settle is what production does once a majority has data.
func (w *World) settle() bool {
	if _, majority := quorum.PlanRejoin(w.reports()); !majority {
		return false
	}
	changed := false
	for i := range w.columns() {
		changed = changed || w.Columns[i].Word
		w.Columns[i].Word = false
	}
	return changed
}

// beginJoin puts a join nonce on an emptied node, then reads the epochs of the
// nodes that answer, and asks all of them to prepare.
func (w *World) beginJoin(j, node int, answers []bool) bool {
	if w.Joins[j].Begun || !w.Columns[node].join(j) {
		return false
	}
	reports := w.reports()
	for i := range reports {
		if !answers[i] {
			reports[i] = quorum.Report{}
		}
	}
	reports, believed := quorum.Believe(reports)
	epoch, ok := quorum.PlanRejoin(reports)
	if !ok {
		return false
	}
	w.Joins[j] = Joining{Begun: true, Word: believed, Epoch: uint8(epoch)}
	for i := range w.columns() {
		w.Columns[i].Prepares[j] = Prepare{Way: Asked}
	}
	w.Columns[node].Prepares[j] = Prepare{Target: true}
	return true
}

func (w *World) answerPrepare(j, node int) {
	c := &w.Columns[node]
	p := &c.Prepares[j]
	p.Way = Answered
	p.Max, p.OK = c.prepare(w.Joins[j].Epoch, w.Joins[j].Word)
}

// hearPrepare sends the init as soon as a majority has moved.
func (w *World) hearPrepare(j, node int) {
	w.Columns[node].Prepares[j].Way = Received
	if w.Joins[j].Way != Unsent {
		return
	}
	prepared := make([]quorum.Report, w.Nodes)
	for i, c := range w.columns() {
		if p := c.Prepares[j]; p.Way == Received && p.OK {
			prepared[i] = quorum.Report{Known: true, Data: true, Epoch: uint64(w.Joins[j].Epoch), Max: fencing.Token(p.Max)}
		}
	}
	// That it has seen larger tokens before is not counted on.
	if floor, ok := quorum.Floor(nil, prepared, uint64(w.Joins[j].Epoch)); ok {
		w.Joins[j].Way, w.Joins[j].Floor = Asked, uint8(floor)
	}
}

// arriveInit ends a join: the node takes it or not.
func (w *World) arriveInit(j int) {
	join := w.Joins[j]
	for i := range w.columns() {
		if w.Columns[i].Prepares[j].Target {
			w.Columns[i].init(j, join.Epoch, join.Floor, join.Word)
		}
		p := &w.Columns[i].Prepares[j]
		if p.Target || p.Way != Asked { // what is still on its way will arrive
			*p = Prepare{}
		}
	}
	w.Joins[j].Way, w.Joins[j].Floor = Received, 0
}
