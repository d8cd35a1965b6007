package sim

import (
	"math/rand/v2"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/proptest/linear"
	"github.com/leased-project/leased/proptest/property"
)

// World lets things happen, one after the other, in the order of their time.
type World struct {
	plan    Plan
	rng     *rand.Rand
	now     time.Duration
	queue   taskQueue
	checker *property.Checker
	record  *record
	net     network

	processes []*process // all, by number
	clients   []*client
	store     *storage
	cluster   *cluster // unless Standalone
	redises   []*redisServer
	crashes   []crashing // of the leader, that wait for an action
	locks     []fencing.Resource

	healed bool
	served []bool // by lock, since healed
	ops    uint64
	bad    []error // violations that are not the judge's
	linear []linear.Op
}

// party is whoever can be paused, cut off, or crash: a client, a node, the
// storage.
type process struct {
	number  int
	name    string
	clock   clock
	life    int // grows when it crashes: what it had in mind is void
	down    bool
	paused  bool
	backlog []task // what has come due while it stood still
}

// task is something that happens to a party.
type task struct {
	whose *process // nil for nobody's
	life  int      // of whose, when it was planned; -1 if it outlives a crash
	do    func()
}

// when is the moment of a task, and where it is kept. It has no pointers: moving
// it costs little.
type when struct {
	at    time.Duration
	seq   uint64
	place int
}

// taskQueue is a heap of moments, the earliest first, and the tasks.
type taskQueue struct {
	heap  []when
	tasks []task
	free  []int // places
	seq   uint64
}

func (a *taskQueue) less(i, j int) bool {
	x, y := &a.heap[i], &a.heap[j]
	return x.at < y.at || x.at == y.at && x.seq < y.seq
}

func (a *taskQueue) push(at time.Duration, t task) {
	place := len(a.tasks)
	if n := len(a.free); n > 0 {
		place, a.free = a.free[n-1], a.free[:n-1]
		a.tasks[place] = t
	} else {
		a.tasks = append(a.tasks, t)
	}
	a.seq++
	a.heap = append(a.heap, when{at, a.seq, place})
	for i := len(a.heap) - 1; i > 0; {
		parent := (i - 1) / 2
		if !a.less(i, parent) {
			break
		}
		a.heap[i], a.heap[parent] = a.heap[parent], a.heap[i]
		i = parent
	}
}

func (a *taskQueue) pop() (time.Duration, task) {
	h := a.heap
	first, last := h[0], len(h)-1
	h[0] = h[last]
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
	t := a.tasks[first.place]
	a.tasks[first.place] = task{}
	a.free = append(a.free, first.place)
	return first.at, t
}

func (w *World) newProcess(name string) *process {
	p := &process{number: len(w.processes), name: name}
	p.clock.ppm = int64(w.rng.IntN(2*maxDrift+1)) - maxDrift
	start := time.Duration(w.rng.IntN(1000)) * time.Millisecond
	p.clock.running, p.clock.boot = start, start
	w.processes = append(w.processes, p)
	return p
}

// later plans something that nobody can stop.
func (w *World) after(d time.Duration, do func()) { w.schedule(d, nil, -1, do) }

// timer plans something of a party's own, which a crash makes void.
func (w *World) timer(p *process, d time.Duration, do func()) { w.schedule(d, p, p.life, do) }

func (w *World) schedule(d time.Duration, p *process, life int, do func()) {
	w.queue.push(w.now+max(0, d), task{whose: p, life: life, do: do})
}

// run lets things happen until true time end, or until done says so.
func (w *World) run(end time.Duration, done func() bool) {
	for len(w.queue.heap) > 0 && w.queue.heap[0].at <= end && !done() {
		at, t := w.queue.pop()
		w.now = at
		w.execute(t)
	}
}

func (w *World) execute(t task) {
	if p := t.whose; p != nil {
		switch {
		case t.life >= 0 && t.life != p.life || p.down:
			return
		case p.paused:
			p.backlog = append(p.backlog, t)
			return
		}
	}
	t.do()
}

// pause lets a party stand still for a while.
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
	for _, t := range backlog { // in the order in which it came
		w.queue.push(w.now, t)
	}
}

// crash makes a party forget what it had in mind.
func (w *World) crash(p *process) {
	w.resume(p)
	p.life++
}

// tell passes an event on to the judge and to the record.
func (w *World) emit(e property.Event) {
	e.At = w.now
	w.record.add(e)
	if err := w.checker.Observe(e); err != nil {
		w.record.broken(err)
	}
}

// wrong notes a broken promise that the judge cannot see.
func (w *World) violation(err error) {
	w.bad = append(w.bad, err)
	w.record.broken(err)
}

// up to d, at random.
func (w *World) random(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return time.Duration(w.rng.Int64N(int64(d)))
}

func (w *World) chance(percent int) bool { return percent > 0 && w.rng.IntN(100) < percent }
