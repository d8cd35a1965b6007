package sim

import (
	"fmt"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/proptest/model"
	"github.com/leased-project/leased/proptest/property"
	"github.com/leased-project/leased/raftstore/machine"
)

// commitLog is the one log that all replicas must agree on. It is told by the
// first replica that applies an entry; it passes what happened on to the judge,
// and to a checker who shares no code with the machine.
type commitLog struct {
	w       *World
	index   uint64
	members []uint32 // as of index
	leads   uint64   // how many Lead there were: the generation, counted a second time
	checker *model.LogChecker
	lives   map[engine.SessionID]int           // how often it was opened after its end
	present map[engine.SessionID]uint64        // its last incarnation
	ended   map[engine.SessionID]bool          // of all sessions that there were
	keys    map[fencing.Token]property.Attempt // who was granted what
	holding map[fencing.Resource]fencing.Token // as the judge was told
	ceiling fencing.Token                      // the largest that there ever was
}

func newCommitLog(w *World) *commitLog {
	return &commitLog{w: w, checker: model.NewLogChecker(), lives: map[engine.SessionID]int{}, ended: map[engine.SessionID]bool{},
		keys: map[fencing.Token]property.Attempt{}, holding: map[fencing.Resource]fencing.Token{}, present: map[engine.SessionID]uint64{}}
}

// begin reports whether an index is new, and notes it.
func (l *commitLog) begin(index uint64, e *entry) bool {
	if index <= l.index {
		return false
	}
	if index != l.index+1 {
		l.w.violation(fmt.Errorf("index %d is applied first, %d was the last", index, l.index))
	}
	l.index = index
	if e.members != nil {
		l.members = e.members
	}
	return true
}

// key names an attempt for the checker. A session that a late copy opens again is
// another one.
func (l *commitLog) key(session engine.SessionID, nonce engine.Nonce) property.Attempt {
	key := l.w.clientKey(int(session[0]), nonce)
	if n := l.lives[session]; n > 0 {
		key += property.Attempt(fmt.Sprintf(" in life %d of its session", n+1))
	}
	return key
}

// before a command is applied.
func (l *commitLog) before(c machine.Command) {
	switch c := c.(type) {
	case *machine.Acquire:
		if l.lives[c.Session] == 0 || l.present[c.Session] == c.Incarnation {
			l.checker.Requested(c.Session, c.Request)
		}
	case *machine.Lead:
		l.leads++
	case *machine.OpenSession:
		if l.ended[c.Session] {
			l.lives[c.Session]++
		}
		l.ended[c.Session] = false
	}
}

// after a command was applied.
func (l *commitLog) after(m *machine.Machine, c machine.Command, result machine.Result, events []machine.Event) {
	for i := range events {
		e := &events[i]
		l.check(l.checker.Observe(model.Event{Kind: model.EventKind(e.Type.String()), Resources: e.Resources, Session: e.Session,
			Nonce: e.Nonce, Token: e.Token, Slot: e.Slot, Mode: e.Mode, Holder: e.Holder, DelayID: e.DelayID, Delay: e.Delay}))
		l.observe(e)
	}
	l.life(c, result)
	if result.Code == machine.Done {
		switch c := c.(type) {
		case *machine.CloseSession:
			l.endSession(c.Session)
		case *machine.Expire:
			l.endSession(c.Session)
			if c.Generation != l.leads {
				l.check(fmt.Errorf("what was decided under generation %d has ended a session in generation %d", c.Generation, l.leads))
			}
		case *machine.RaiseFloor:
			l.checker.RaiseFloor(result.Token)
		case *machine.FinishMove, *machine.Reconcile:
			l.checker.RaiseFloor(m.LastToken())
		case *machine.AssignRange:
			r := result.Range
			l.check(l.checker.RangeAssigned(model.Range{Floor: r.Floor, Ceiling: r.Ceiling, Version: r.Version, First: r.First}))
		}
	}
	if l.w.plan.Setting == Service && result.Version != 0 { // the command is about the topology
		l.routed(m)
	}
	l.check(l.checker.CheckWaiters())
}

// routed tells the checker how the locks are provided now.
func (l *commitLog) routed(m *machine.Machine) {
	ways, topology, e := map[fencing.Resource]model.Route{}, m.Topology(), m.Efficiency()
	for _, name := range l.w.locks {
		mode, err := topology.ModeOf(name)
		ways[name] = model.Route{Mode: mode, Moving: err != nil, Ready: topology.Ready}
	}
	l.ceiling = max(l.ceiling, e.Ceiling)
	l.check(l.checker.Routed(ways, e.Floor, e.Ceiling))
}

// life holds that what was asked for in one life of a session has no effect on
// another, and that no two have one number.
func (l *commitLog) life(c machine.Command, result machine.Result) {
	switch c := c.(type) {
	case *machine.OpenSession:
		if last, again := l.present[c.Session]; again && result.Incarnation < last {
			l.check(fmt.Errorf("a session was opened as incarnation %d after %d", result.Incarnation, last))
		}
		l.present[c.Session] = result.Incarnation
	case *machine.Acquire:
		if result.Code != machine.NoSession && c.Incarnation != l.present[c.Session] {
			l.check(fmt.Errorf("what was asked for in incarnation %d has come to %s in %d", c.Incarnation, result.Code, l.present[c.Session]))
		}
	}
}

func (l *commitLog) endSession(id engine.SessionID) {
	l.check(l.checker.SessionEnded(id))
	l.ended[id] = true
}

func (l *commitLog) check(err error) {
	if err != nil {
		l.w.violation(fmt.Errorf("the checker of the log, at index %d: %w", l.index, err))
	}
}

// judge passes an event on.
func (l *commitLog) observe(e *machine.Event) {
	name := e.Resources
	switch e.Type {
	case machine.EventGranted:
		key := l.key(e.Session, e.Nonce)
		if l.lives[e.Session] > 0 {
			l.w.emit(property.Event{Kind: property.Requested, Who: "a late copy", Resource: name[0], Attempt: key})
		}
		l.keys[e.Token], l.holding[name[0]] = key, e.Token
		l.w.emit(property.Event{Kind: property.Granted, Who: "log", Resource: name[0], Attempt: key, Token: e.Token})
	case machine.EventReleased, machine.EventExpired, machine.EventBroken:
		if l.holding[name[0]] != e.Token {
			return // a holder that a restore brought back
		}
		delete(l.holding, name[0])
		l.w.emit(property.Event{Kind: property.Freed, Who: "log", Resource: name[0], Attempt: l.keys[e.Token], Token: e.Token,
			Note: e.Type.String()})
	}
}

// restored begins a new checker: nobody holds or waits any more. FaultKind the log
// granted is forgotten.
func (l *commitLog) restored(m *machine.Machine) {
	l.w.emit(property.Event{Kind: property.Restored, Who: "log"})
	clear(l.holding)
	l.leads = m.Generation()
	l.checker = model.NewLogChecker()
	for _, name := range l.w.locks {
		status := m.Inspect(name)
		if status.Delayed {
			l.check(l.checker.Observe(model.Event{Kind: model.WasDelayed, Resources: []resource{name}}))
		}
		if len(status.Holders)+len(status.Waiters) > 0 {
			l.check(fmt.Errorf("after a restore somebody holds %s, or waits for it", name))
		}
	}
	l.checker.RaiseFloor(m.LastToken())
	if l.w.plan.Setting == Service {
		l.routed(m)
	}
	for id := range l.ended {
		l.ended[id] = true
	}
}
