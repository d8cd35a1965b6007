package sim

import "time"

// network is how messages get from one party to another: later, or not at all,
// or twice; hence in any order.
type network struct {
	latency time.Duration // the least
	jitter  time.Duration // on top, at random
	cuts    map[[2]int]int
	loss    int           // percent
	repeat  int           // percent
	spike   int           // percent of messages that are late
	late    time.Duration // by how much, at most
}

// cut breaks one direction. It can be cut several times, and must be mended as
// often.
func (n *network) cut(from, to *process)  { n.cuts[[2]int{from.number, to.number}]++ }
func (n *network) mend(from, to *process) { n.cuts[[2]int{from.number, to.number}]-- }

// whole reports whether a direction is not cut.
func (n *network) whole(from, to *process) bool { return n.cuts[[2]int{from.number, to.number}] <= 0 }

// send carries a message. A copy of it may arrive again, unless once.
func (w *World) send(from, to *process, once bool, do func()) {
	if !w.net.whole(from, to) || w.chance(w.net.loss) {
		return
	}
	w.schedule(w.latency(), to, -1, do)
	if !once && w.chance(w.net.repeat) {
		w.schedule(w.latency()+w.random(2*time.Second), to, -1, do)
	}
}

// way is how long a message takes.
func (w *World) latency() time.Duration {
	d := w.net.latency + w.random(w.net.jitter)
	if w.chance(w.net.spike) {
		d += w.random(w.net.late)
	}
	return d
}
