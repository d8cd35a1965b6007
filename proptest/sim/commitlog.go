package sim

import (
	"errors"
	"fmt"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/proptest/model"
	"github.com/leased-project/leased/proptest/property"
	"github.com/leased-project/leased/raftstore/machine"
)

// commitLog observes the committed log, which is the same for all replicas. The first
// replica that applies an entry reports it; the property checker and a log checker, which
// shares no code with the machine, check it.
type commitLog struct {
	w            *World
	index        uint64
	members      []uint32 // at index
	leads        uint64   // number of Leads: the expected generation
	checker      *model.LogChecker
	lives        map[engine.SessionID]int           // how often it was opened again
	incarnations map[engine.SessionID]uint64        // the last one
	until        map[model.Session]time.Duration    // what leaders have promised, at the least
	ended        map[engine.SessionID]bool          // all sessions
	keys         map[fencing.Token]property.Attempt // the attempt of each grant
	holding      map[fencing.Resource]fencing.Token // as reported to the property checker
	ceiling      fencing.Token                      // the largest ever
	adopted      bool                               // efficiency mode was ready
	fleetless    bool                               // restored without a fleet
}

// begin reports whether an index is new.
func (l *commitLog) begin(index uint64, e *entry) bool {
	if index <= l.index {
		return false
	}
	if index != l.index+1 {
		l.w.violation(fmt.Errorf("index %d is applied after index %d", index, l.index))
	}
	l.index = index
	if e.members != nil {
		l.members = e.members
	}
	return true
}

// key returns the identity of an attempt for the property checker. A session that a late
// copy opens again is a new one.
func (l *commitLog) key(session engine.SessionID, nonce engine.Nonce) property.Attempt {
	key := l.w.attemptKey(session, nonce)
	if n := l.lives[session]; n > 0 {
		key += property.Attempt(fmt.Sprintf(" in session %d", n+1))
	}
	return key
}

// before is called before a command is applied.
func (l *commitLog) before(c machine.Command) {
	switch c := c.(type) {
	case *machine.Acquire:
		if l.lives[c.Session] == 0 || l.incarnations[c.Session] == c.Incarnation {
			l.checker.Requested(model.Session{ID: c.Session, Incarnation: c.Incarnation}, c.Request)
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

// after is called after a command was applied.
func (l *commitLog) after(m *machine.Machine, c machine.Command, result machine.Result, events []machine.Event) {
	for i := range events {
		e := &events[i]
		l.check(l.checker.Observe(model.Event{Kind: model.EventKind(e.Type.String()), Resources: e.Resources,
			Session: e.Session,
			Nonce:   e.Nonce, Token: e.Token, Slot: e.Slot, Mode: e.Mode, Holder: e.Holder, DelayID: e.DelayID, Delay: e.Delay,
			Incarnation: e.Incarnation}))
		l.observe(e)
	}
	l.checkIncarnation(c, result)
	if result.Code == machine.Done {
		switch c := c.(type) {
		case *machine.CloseSession:
			l.endSession(model.Session{ID: c.Session, Incarnation: c.Incarnation})
		case *machine.Expire:
			ended := model.Session{ID: c.Session, Incarnation: c.Incarnation}
			l.endSession(ended)
			l.checkExpiry(ended)
			if c.Generation != l.leads {
				l.check(fmt.Errorf("an Expire of generation %d ended a session in generation %d", c.Generation, l.leads))
			}
		case *machine.EndRequests:
			l.check(l.checker.AllEnded())
		case *machine.RaiseFloor:
			l.checker.RaiseFloor(result.Token)
		case *machine.FinishMigration:
			l.checker.RaiseFloor(m.LastToken())
			if c.Granted != fencing.None {
				l.checker.RedisGranted(c.Granted)
			}
		case *machine.Reconcile, *machine.MarkRestored, *machine.SetFleet, *machine.FinishFleet:
			l.checker.RaiseFloor(m.LastToken())
		}
	}
	if l.w.plan.Setting == Service && result.Version != 0 { // the command concerns the topology
		l.routed(m)
	}
	l.check(l.checker.CheckWaiters())
}

// extended records that a leader extended a session, from the arrival of the renewal.
func (l *commitLog) extended(id engine.SessionID, incarnation uint64, arrived, ttl time.Duration) {
	key := model.Session{ID: id, Incarnation: incarnation}
	l.until[key] = max(l.until[key], arrived+ttl*(1_000_000-2*maxDrift)/1_000_000)
}

// checkExpiry checks that a session does not expire before the end of a renewal that a
// leader confirmed, whichever leader that was.
func (l *commitLog) checkExpiry(s model.Session) {
	if until := l.until[s]; l.w.now < until && l.w.plan.soundNodeClocks() {
		l.check(fmt.Errorf("a session expired %v before the end of its renewal", until-l.w.now))
	}
}

// routed passes the current routes to the log checker.
func (l *commitLog) routed(m *machine.Machine) {
	routes, topology, e := map[fencing.Resource]model.Route{}, m.Topology(), m.Efficiency()
	for _, name := range l.w.locks {
		mode, err := topology.ModeOf(name)
		routes[name] = model.Route{Mode: mode, Moving: err != nil, Ready: topology.Ready}
	}
	l.ceiling, l.adopted = max(l.ceiling, e.Ceiling), l.adopted || topology.Ready
	if l.fleetless && e.Restored {
		l.check(errors.New("correctness mode waits for a fleet that the log does not know"))
	}
	l.check(l.checker.Routed(routes, e.Floor, e.Ceiling))
}

// checkIncarnation checks that requests of one incarnation have no effect on another, and
// that no incarnation is reused.
func (l *commitLog) checkIncarnation(c machine.Command, result machine.Result) {
	switch c := c.(type) {
	case *machine.OpenSession:
		if last, again := l.incarnations[c.Session]; again && result.Incarnation < last {
			l.check(fmt.Errorf("a session was opened as incarnation %d after incarnation %d", result.Incarnation, last))
		}
		l.incarnations[c.Session] = result.Incarnation
	case *machine.Acquire:
		if result.Code != machine.NoSession && c.Incarnation != l.incarnations[c.Session] {
			l.check(fmt.Errorf("an Acquire of incarnation %d returned %q in incarnation %d", c.Incarnation, result.Code,
				l.incarnations[c.Session]))
		}
	}
}

func (l *commitLog) endSession(s model.Session) {
	l.checker.SessionEnded(s)
	l.ended[s.ID] = true
}

func (l *commitLog) check(err error) {
	if err != nil {
		l.w.violation(fmt.Errorf("log checker at index %d: %w", l.index, err))
	}
}

// observe passes an event to the property checker.
func (l *commitLog) observe(e *machine.Event) {
	name := e.Resources
	switch e.Type {
	case machine.EventGranted:
		key := l.key(e.Session, e.Nonce)
		if l.lives[e.Session] > 0 {
			l.w.emit(property.Event{Kind: property.Requested, Who: "late copy", Resource: name[0], Attempt: key})
		}
		l.keys[e.Token], l.holding[name[0]] = key, e.Token
		l.w.emit(property.Event{Kind: property.Granted, Who: "log", Resource: name[0], Attempt: key, Token: e.Token})
	case machine.EventReleased, machine.EventExpired, machine.EventBroken:
		if l.holding[name[0]] != e.Token {
			return // it held before a restore
		}
		delete(l.holding, name[0])
		l.w.emit(property.Event{Kind: property.Freed, Who: "log", Resource: name[0], Attempt: l.keys[e.Token], Token: e.Token,
			Note: e.Type.String()})
	}
}

// restored starts a new log checker, since no attempt holds or waits after a restore.
func (l *commitLog) restored(m *machine.Machine) {
	l.w.emit(property.Event{Kind: property.Restored, Who: "log"})
	clear(l.holding)
	l.fleetless = m.Topology().Fleet.IsZero()
	l.leads = m.Generation()
	l.checker = model.NewLogChecker()
	for _, name := range l.w.locks {
		status := m.Inspect(name)
		if status.Delayed {
			l.check(l.checker.Observe(model.Event{Kind: model.WasDelayed, Resources: []fencing.Resource{name}}))
		}
		if len(status.Holders)+len(status.Waiters) > 0 {
			l.check(fmt.Errorf("%s has holders or waiters after a restore", name))
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
