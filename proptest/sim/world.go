package sim

import (
	"math/rand/v2"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/proptest/property"
)

// World is the simulation: it executes tasks in the order of their time.
type World struct {
	plan    Plan
	rng     *rand.Rand
	now     time.Duration
	queue   taskQueue
	checker *property.Checker
	record  *record
	net     network

	processes []*process // by number
	clients   []*client
	store     *storage
	cluster   *cluster // unless Standalone
	redises   []*redisServer
	crashes   []crashing // of the leader, at a later action
	locks     []fencing.Resource

	healed bool
	served []bool // by lock: granted since healed

	granted map[fencing.Resource]fencing.Token // the largest of each lock
	ops     uint64
}

// process is a client, a node or the storage: it can be paused, crash or lose its
// connections.
type process struct {
	number  int
	name    string
	clock   clock
	life    int // incremented by a crash, which cancels its tasks
	down    bool
	paused  bool
	backlog []task // due while it was paused

	fleet  string // to which it connects
	usable bool   // it has connected
}

// task is a step of a process.
type task struct {
	at    time.Duration
	seq   uint64   // of tasks of the same time
	owner *process // nil for a task of the simulator
	life  int      // of the owner when it was scheduled; -1 if it survives a crash
	do    func()
}

// taskQueue is a heap of tasks, the earliest first. With container/heap a run takes two thirds more time.
type taskQueue struct {
	heap []task
	seq  uint64
}

func (a *taskQueue) less(i, j int) bool {
	x, y := &a.heap[i], &a.heap[j]
	return x.at < y.at || x.at == y.at && x.seq < y.seq
}

func (a *taskQueue) push(t task) {
	a.seq++
	t.seq = a.seq
	a.heap = append(a.heap, t)
	for i := len(a.heap) - 1; i > 0; {
		parent := (i - 1) / 2
		if !a.less(i, parent) {
			break
		}
		a.heap[i], a.heap[parent] = a.heap[parent], a.heap[i]
		i = parent
	}
}

func (a *taskQueue) pop() task {
	h := a.heap
	first, last := h[0], len(h)-1
	h[0], h[last] = h[last], task{}
	a.heap = h[:last]
	for i := 0; ; {
		child := 2*i + 1
		if child >= last {
			break
		}
		if child+1 < last && a.less(child+1, child) {
			child++
		}
		if !a.less(child, i) {
			break
		}
		h[i], h[child] = h[child], h[i]
		i = child
	}
	return first
}

func (w *World) newProcess(name string) *process {
	p := &process{number: len(w.processes), name: name}
	p.clock.ppm = int64(w.rng.IntN(2*maxDrift+1)) - maxDrift
	start := time.Duration(w.rng.IntN(1000)) * time.Millisecond
	p.clock.running, p.clock.boot = start, start
	w.processes = append(w.processes, p)
	return p
}

// after schedules a task of the simulator.
func (w *World) after(d time.Duration, do func()) { w.schedule(d, nil, -1, do) }

// timer schedules a task of a process, which a crash cancels.
func (w *World) timer(p *process, d time.Duration, do func()) { w.schedule(d, p, p.life, do) }

func (w *World) schedule(d time.Duration, p *process, life int, do func()) {
	w.queue.push(task{at: w.now + max(0, d), owner: p, life: life, do: do})
}

// run executes tasks until the simulated time end, or until done.
func (w *World) run(end time.Duration, done func() bool) {
	for len(w.queue.heap) > 0 && w.queue.heap[0].at <= end && !done() {
		t := w.queue.pop()
		w.now = t.at
		switch p := t.owner; {
		case p != nil && (t.life >= 0 && t.life != p.life || p.down): // a crash cancelled it
		case p != nil && p.paused:
			p.backlog = append(p.backlog, t)
		default:
			t.do()
		}
	}
}

// pause pauses a process for a while.
func (w *World) pause(p *process, d time.Duration, why string) {
	if p.paused || p.down {
		return
	}
	p.paused = true
	w.emit(property.Event{Kind: property.Paused, Who: p.name, Note: why})
	w.after(d, func() { w.resume(p) })
}

func (w *World) resume(p *process) {
	if !p.paused {
		return
	}
	p.paused = false
	w.emit(property.Event{Kind: property.Resumed, Who: p.name})
	backlog := p.backlog
	p.backlog = nil
	for _, t := range backlog { // in their order
		t.at = w.now
		w.queue.push(t)
	}
}

// crash cancels the tasks of a process.
func (w *World) crash(p *process) {
	w.resume(p)
	p.life++
	p.fleet = ""
}

// emit records an event and checks it. The checker ignores an Enter or a Read, which spares its lock.
func (w *World) emit(e property.Event) {
	e.At = w.now
	w.granted[e.Resource] = max(w.granted[e.Resource], e.Token)
	w.record.add(e)
	if e.Access != property.Write {
		return
	}
	if err := w.checker.Observe(e); err != nil {
		w.violation(err)
	}
}

// violation records a violation, which the property checker may not see.
func (w *World) violation(err error) { w.record.bad = append(w.record.bad, err) }

// random returns a random duration below d.
func (w *World) random(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return time.Duration(w.rng.Int64N(int64(d)))
}

func (w *World) chance(percent int) bool { return percent > 0 && w.rng.IntN(100) < percent }
