package raftstore

import (
	"container/heap"
	"sync"
	"time"

	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/machine"
)

const (
	// retryPause is how long the lessor waits before it proposes again what
	// could not be proposed.
	retryPause = 50 * time.Millisecond
	// idleNap is how long it sleeps when nothing is due.
	idleNap = time.Hour
)

// lessor watches the time of the sessions, on the leader only and on a clock
// that never jumps. A renewal is a new deadline in memory. What has run out is
// proposed to the machine, under the generation of this leadership: the machine
// decides whether that still counts.
type lessor struct {
	clock   engine.Clock
	propose func(term *leadership, commands []machine.Command) (failed []machine.Command)
	wake    chan struct{}

	mu       sync.Mutex
	term     *leadership // nil while not leading
	sessions map[engine.SessionID]*sessionTimer
	due      dueHeap
}

// sessionTimer is the time of one session.
type sessionTimer struct {
	machine.SessionInfo
	deadline time.Time
	ending   bool     // its end is proposed: it is not renewed any more
	due      *dueItem // when it is looked at next; nil while it ends
}

func newLessor(propose func(*leadership, []machine.Command) []machine.Command) *lessor {
	return &lessor{clock: engine.MonotonicClock(), propose: propose, wake: make(chan struct{}, 1)}
}

func (l *lessor) now() time.Time { return l.clock.Now().Time() }

// begin starts a leadership: every session has its full time again, and grace
// on top, for what a former leader may have promised last.
func (l *lessor) begin(term *leadership, sessions map[engine.SessionID]machine.SessionInfo, delays []machine.Event, grace time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.term, l.sessions, l.due = term, make(map[engine.SessionID]*sessionTimer, len(sessions)), nil
	for id, info := range sessions {
		l.add(id, info, grace)
	}
	for i := range delays {
		l.delay(&delays[i])
	}
	l.poke()
}

// end stops watching: another leader does, or will.
func (l *lessor) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.term, l.sessions, l.due = nil, nil, nil
}

// applied keeps the books in step with the machine. The caller holds fsm.mu.
func (l *lessor) applied(c machine.Command, result machine.Result, events []machine.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.term == nil {
		return
	}
	switch c := c.(type) {
	case *machine.OpenSession:
		if l.sessions[c.Session] == nil {
			l.add(c.Session, machine.SessionInfo{TTL: c.TTL, Incarnation: result.Incarnation}, 0)
			l.poke()
		}
	case *machine.CloseSession:
		l.forget(c.Session, c.Incarnation)
	case *machine.Expire:
		if result.Code == machine.Done || result.Code == machine.NoSession {
			l.forget(c.Session, c.Incarnation)
		}
	case *machine.EndSessions:
		for id, t := range l.sessions {
			l.forget(id, t.Incarnation)
		}
	}
	for i := range events {
		if events[i].Type == machine.EventDelayed {
			l.delay(&events[i])
			l.poke()
		}
	}
}

// add begins the time of a session. The caller holds mu.
func (l *lessor) add(id engine.SessionID, info machine.SessionInfo, grace time.Duration) {
	t := &sessionTimer{SessionInfo: info, deadline: l.now().Add(info.TTL + grace)}
	l.sessions[id] = t
	l.lookAt(id, t, t.deadline)
}

// lookAt puts a session among what is due. The caller holds mu.
func (l *lessor) lookAt(id engine.SessionID, t *sessionTimer, at time.Time) {
	t.due = &dueItem{at: at, session: id}
	heap.Push(&l.due, t.due)
}

// forget ends the time of a session that is over, unless it is another
// incarnation that has the id now. The caller holds mu.
func (l *lessor) forget(id engine.SessionID, incarnation uint64) {
	t := l.sessions[id]
	if t == nil || t.Incarnation != incarnation {
		return
	}
	if t.due != nil {
		heap.Remove(&l.due, t.due.index)
	}
	delete(l.sessions, id)
}

// delay begins the time of a lock-delay. The caller holds mu.
func (l *lessor) delay(e *machine.Event) {
	heap.Push(&l.due, &dueItem{at: l.now().Add(e.Delay),
		opens: &machine.EndDelay{Resource: e.Resources[0], Delay: e.DelayID, Generation: l.term.generation}})
}

// renew gives a session its full time again, and reports whether there is one
// that has not run out, and is this incarnation: who was in an earlier one must
// hear that it has ended.
func (l *lessor) renew(term *leadership, id engine.SessionID, incarnation uint64) (known bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.sessions[id]
	if l.term != term || t == nil || t.ending || t.Incarnation != incarnation {
		return false
	}
	if deadline := l.now().Add(t.TTL); deadline.After(t.deadline) {
		t.deadline = deadline
	}
	return true
}

// left is the time that a session has left.
func (l *lessor) left(id engine.SessionID) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if t := l.sessions[id]; t != nil {
		return max(0, min(t.TTL, t.deadline.Sub(l.now())))
	}
	return 0
}

// run proposes what has run out, until stopped.
func (l *lessor) run(stopped <-chan struct{}) {
	timer := time.NewTimer(idleNap)
	defer timer.Stop()
	for {
		term, commands, nap := l.collect()
		if len(commands) > 0 {
			go func() { l.again(term, l.propose(term, commands)) }()
		}
		timer.Reset(nap)
		select {
		case <-timer.C:
		case <-l.wake:
		case <-stopped:
			return
		}
	}
}

// collect takes what is due. A session that was renewed since is put back.
func (l *lessor) collect() (term *leadership, commands []machine.Command, nap time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	for len(l.due) > 0 && !l.due[0].at.After(now) {
		item := heap.Pop(&l.due).(*dueItem)
		if item.opens != nil {
			commands = append(commands, item.opens)
			continue
		}
		t := l.sessions[item.session] // it is there, else the item were not
		if t.deadline.After(now) {
			l.lookAt(item.session, t, t.deadline)
			continue
		}
		t.ending, t.due = true, nil
		commands = append(commands, &machine.Expire{Session: item.session, Incarnation: t.Incarnation, Generation: l.term.generation})
	}
	nap = idleNap
	if len(l.due) > 0 {
		nap = l.due[0].at.Sub(now)
	}
	return l.term, commands, nap
}

// again schedules what could not be proposed, if this node still leads.
func (l *lessor) again(term *leadership, failed []machine.Command) {
	if len(failed) == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.term != term {
		return
	}
	at := l.now().Add(retryPause)
	for _, c := range failed {
		switch c := c.(type) {
		case *machine.EndDelay:
			heap.Push(&l.due, &dueItem{at: at, opens: c})
		case *machine.Expire:
			if t := l.sessions[c.Session]; t != nil && t.ending && t.Incarnation == c.Incarnation {
				t.ending = false
				l.lookAt(c.Session, t, at)
			}
		}
	}
	l.poke()
}

func (l *lessor) poke() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// dueItem is a session to look at, or a lock-delay to end.
type dueItem struct {
	at      time.Time
	session engine.SessionID
	opens   *machine.EndDelay
	index   int // in the heap
}

// dueHeap has the earliest item first.
type dueHeap []*dueItem

func (h dueHeap) Len() int           { return len(h) }
func (h dueHeap) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h dueHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push adds an item at the end.
func (h *dueHeap) Push(x any) {
	item := x.(*dueItem)
	item.index = len(*h)
	*h = append(*h, item)
}

// Pop takes the item at the end.
func (h *dueHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return last
}
