package sim

import "time"

// network delivers messages between processes: late, not at all, or twice, and hence in
// any order.
type network struct {
	latency time.Duration // the minimum
	jitter  time.Duration // random, added to latency
	cuts    map[[2]int]int
	loss    int           // percent
	repeat  int           // percent
	spike   int           // percent of messages that are delayed
	late    time.Duration // the maximum delay
}

// cut blocks one direction. Cuts nest: mend must be called as often.
func (n *network) cut(from, to *process)  { n.cuts[[2]int{from.number, to.number}]++ }
func (n *network) mend(from, to *process) { n.cuts[[2]int{from.number, to.number}]-- }

// whole reports whether a direction is not cut.
func (n *network) whole(from, to *process) bool { return n.cuts[[2]int{from.number, to.number}] <= 0 }

// send delivers a message. It may be delivered twice, unless once is set.
func (w *World) send(from, to *process, once bool, do func()) {
	if !w.net.whole(from, to) || w.chance(w.net.loss) {
		return
	}
	w.schedule(w.latency(), to, -1, do)
	if !once && w.chance(w.net.repeat) {
		w.schedule(w.latency()+w.random(2*time.Second), to, -1, do)
	}
}

// latency returns the time that a message takes.
func (w *World) latency() time.Duration {
	d := w.net.latency + w.random(w.net.jitter)
	if w.chance(w.net.spike) {
		d += w.random(w.net.late)
	}
	return d
}
