package sim

import (
	"fmt"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/proptest/model"
	"github.com/leased-project/leased/proptest/promise"
	"github.com/leased-project/leased/raftstore/machine"
)

// chronicle is the one log that all replicas must agree on. It is told by the
// first replica that applies an entry; it passes what happened on to the judge,
// and to a witness who shares no code with the machine.
type chronicle struct {
	w       *World
	index   uint64
	members []uint32 // as of index
	leads   uint64   // how many Lead there were: the generation, counted a second time
	witness *model.Witness
	lives   map[engine.SessionID]int           // how often it was opened after its end
	present map[engine.SessionID]uint64        // its last incarnation
	ended   map[engine.SessionID]bool          // of all sessions that there were
	keys    map[fencing.Token]promise.Attempt  // who was granted what
	holding map[fencing.Resource]fencing.Token // as the judge was told
	ceiling fencing.Token                      // the largest that there ever was
}

func newChronicle(w *World) *chronicle {
	return &chronicle{w: w, witness: model.NewWitness(), lives: map[engine.SessionID]int{}, ended: map[engine.SessionID]bool{},
		keys: map[fencing.Token]promise.Attempt{}, holding: map[fencing.Resource]fencing.Token{}, present: map[engine.SessionID]uint64{}}
}

// begin reports whether an index is new, and notes it.
func (l *chronicle) begin(index uint64, e *entry) bool {
	if index <= l.index {
		return false
	}
	if index != l.index+1 {
		l.w.wrong(fmt.Errorf("index %d is applied first, %d was the last", index, l.index))
	}
	l.index = index
	if e.members != nil {
		l.members = e.members
	}
	return true
}

// key names an attempt for the judge. A session that a late copy opens again is
// another one.
func (l *chronicle) key(session engine.SessionID, nonce engine.Nonce) promise.Attempt {
	key := l.w.clientKey(int(session[0]), nonce)
	if n := l.lives[session]; n > 0 {
		key += promise.Attempt(fmt.Sprintf(" in life %d of its session", n+1))
	}
	return key
}

// before a command is applied.
func (l *chronicle) before(c machine.Command) {
	switch c := c.(type) {
	case *machine.Acquire:
		if l.lives[c.Session] == 0 || l.present[c.Session] == c.Incarnation {
			l.witness.Asked(c.Session, c.Request)
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
func (l *chronicle) after(m *machine.Machine, c machine.Command, result machine.Result, events []machine.Event) {
	for i := range events {
		e := &events[i]
		l.content(l.witness.See(model.Event{What: model.Happening(e.Type.String()), Resources: e.Resources, Session: e.Session,
			Nonce: e.Nonce, Token: e.Token, Slot: e.Slot, Mode: e.Mode, Holder: e.Holder, DelayID: e.DelayID, Delay: e.Delay}))
		l.judge(e)
	}
	l.life(c, result)
	if result.Code == machine.Done {
		switch c := c.(type) {
		case *machine.CloseSession:
			l.endSession(c.Session)
		case *machine.Expire:
			l.endSession(c.Session)
			if c.Generation != l.leads {
				l.content(fmt.Errorf("what was decided under generation %d has ended a session in generation %d", c.Generation, l.leads))
			}
		case *machine.RaiseFloor:
			l.witness.Raised(result.Token)
		case *machine.FinishMove, *machine.Reconcile:
			l.witness.Raised(m.LastToken())
		case *machine.AssignRange:
			r := result.Range
			l.content(l.witness.RangeAssigned(model.Range{Floor: r.Floor, Ceiling: r.Ceiling, Version: r.Version, First: r.First}))
		}
	}
	if l.w.plan.Setting == Service && result.Version != 0 { // the command is about the topology
		l.routed(m)
	}
	l.content(l.witness.Settled())
}

// routed tells the witness how the locks are provided now.
func (l *chronicle) routed(m *machine.Machine) {
	ways, topology, e := map[fencing.Resource]model.Way{}, m.Topology(), m.Efficiency()
	for _, name := range l.w.locks {
		mode, err := topology.ModeOf(name)
		ways[name] = model.Way{Mode: mode, Moving: err != nil, Ready: topology.Ready}
	}
	l.ceiling = max(l.ceiling, e.Ceiling)
	l.content(l.witness.Routed(ways, e.Floor, e.Ceiling))
}

// life holds that what was asked for in one life of a session has no effect on
// another, and that no two have one number.
func (l *chronicle) life(c machine.Command, result machine.Result) {
	switch c := c.(type) {
	case *machine.OpenSession:
		if last, again := l.present[c.Session]; again && result.Incarnation < last {
			l.content(fmt.Errorf("a session was opened as incarnation %d after %d", result.Incarnation, last))
		}
		l.present[c.Session] = result.Incarnation
	case *machine.Acquire:
		if result.Code != machine.NoSession && c.Incarnation != l.present[c.Session] {
			l.content(fmt.Errorf("what was asked for in incarnation %d has come to %s in %d", c.Incarnation, result.Code, l.present[c.Session]))
		}
	}
}

func (l *chronicle) endSession(id engine.SessionID) {
	l.content(l.witness.SessionEnded(id))
	l.ended[id] = true
}

func (l *chronicle) content(err error) {
	if err != nil {
		l.w.wrong(fmt.Errorf("the witness of the log, at index %d: %w", l.index, err))
	}
}

// judge passes an event on.
func (l *chronicle) judge(e *machine.Event) {
	name := e.Resources
	switch e.Type {
	case machine.EventGranted:
		key := l.key(e.Session, e.Nonce)
		if l.lives[e.Session] > 0 {
			l.w.tell(promise.Event{Kind: promise.Asked, Who: "a late copy", Resource: name[0], Attempt: key})
		}
		l.keys[e.Token], l.holding[name[0]] = key, e.Token
		l.w.tell(promise.Event{Kind: promise.Granted, Who: "log", Resource: name[0], Attempt: key, Token: e.Token})
	case machine.EventReleased, machine.EventExpired, machine.EventBroken:
		if l.holding[name[0]] != e.Token {
			return // a holder that a restore brought back
		}
		delete(l.holding, name[0])
		l.w.tell(promise.Event{Kind: promise.Freed, Who: "log", Resource: name[0], Attempt: l.keys[e.Token], Token: e.Token,
			Note: e.Type.String()})
	}
}

// restored begins a new witness: nobody holds or waits any more. What the log
// granted is forgotten.
func (l *chronicle) restored(m *machine.Machine) {
	l.w.tell(promise.Event{Kind: promise.Restored, Who: "log"})
	clear(l.holding)
	l.leads = m.Generation()
	l.witness = model.NewWitness()
	for _, name := range l.w.locks {
		status := m.Inspect(name)
		if status.Delayed {
			l.content(l.witness.See(model.Event{What: model.WasDelayed, Resources: []resource{name}}))
		}
		if len(status.Holders)+len(status.Waiters) > 0 {
			l.content(fmt.Errorf("after a restore somebody holds %s, or waits for it", name))
		}
	}
	l.witness.Raised(m.LastToken())
	if l.w.plan.Setting == Service {
		l.routed(m)
	}
	for id := range l.ended {
		l.ended[id] = true
	}
}
