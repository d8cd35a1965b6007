package lessor

import (
	"cmp"
	"container/heap"
	"time"

	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/machine"
)

const (
	// ProofLife is how long a committed entry proves that its proposer leads. A
	// new leader adds it to every TTL, as grace for the last renewals of its
	// predecessor. All members must use the same value, in every release: a
	// leader with a longer one would renew sessions for longer than its successor
	// keeps them.
	ProofLife = 500 * time.Millisecond
	// RetryPause is the time before a command that failed is due again.
	RetryPause = 50 * time.Millisecond
	// Idle is the wait that Due returns when nothing has a deadline.
	Idle = time.Hour
	// MaxDue bounds the commands that Due returns, so that others' commands come between
	// those of many sessions that end together.
	MaxDue = 500
	// MaxVisits bounds the deadlines that Due looks at. One TTL after a takeover it finds the first
	// deadline of every session, most of which were renewed since.
	MaxVisits = 2000
)

// Lessor keeps the deadlines of one leadership. Its methods must not be called
// concurrently.
//
// Deadlines follow the clock that stops while the machine is suspended: a
// suspended leader extends leases, which is safe. The age of a proof follows
// the more pessimistic clock of an Instant.
type Lessor struct {
	generation uint64
	proven     engine.Instant
	sessions   map[engine.SessionID]*session
	deadlines  deadlineHeap

	since time.Time // when the leadership began, with the grace of its sessions
	end   *deadline // when the next EndRequests is due; nil if no session is ending

	sessionsLeft, delaysLeft int // of the machine, to be adopted: see machine.Sessions and machine.Delays
}

// session is the deadline of one session.
type session struct {
	machine.SessionInfo
	deadline time.Time
	renewed  time.Time // or opened, or adopted
	client   string    // of NoteClient
	expiring bool      // its Expire was returned by Due and may commit
	next     *deadline // its place in the heap; nil while its Expire is in flight
}

// New begins a leadership, whose Lead was proposed at proven and has committed
// with generation. ending says whether sessions have ended under an earlier leader that still
// have requests. Adopt must follow until it returns false.
func New(now, proven engine.Instant, generation uint64, ending bool, grace time.Duration) *Lessor {
	l := &Lessor{generation: generation, proven: proven, sessions: map[engine.SessionID]*session{},
		since: now.Time().Add(grace), sessionsLeft: machine.AllSessions, delaysLeft: machine.AllDelays}
	if ending {
		l.endRequests(now.Time())
	}
	return l
}

// Adopt takes over the next sessions and the next lock-delays of m, at most limit of each, and
// returns false if there are no more. Sessions that were open when the leadership began get their
// full TTL, and the grace on top. They are adopted in pieces, while the leader serves: one that is
// not adopted yet does not expire, and must be adopted before it is renewed.
//
// Lock-delays get their full time from now on. A delay that is adopted twice, or began under this
// leadership, does no harm: the second EndDelay has no effect.
func (l *Lessor) Adopt(now engine.Instant, m *machine.Machine, limit int) (more bool) {
	sessions, sessionsLeft := m.Sessions(l.sessionsLeft, limit)
	l.adopt(sessions...)
	delays, delaysLeft := m.Delays(l.delaysLeft, limit)
	for i := range delays {
		l.addDelay(now, &delays[i])
	}
	l.sessionsLeft, l.delaysLeft = sessionsLeft, delaysLeft
	return sessionsLeft+delaysLeft > 0
}

// AdoptOne takes over one session of m, if it is open and Adopt may not have done it yet.
func (l *Lessor) AdoptOne(m *machine.Machine, id engine.SessionID) {
	if info := m.SessionInfo(id); !l.HasAll() && info.Incarnation != 0 {
		l.adopt(machine.OpenedSession{ID: id, SessionInfo: info})
	}
}

func (l *Lessor) adopt(sessions ...machine.OpenedSession) {
	for _, opened := range sessions {
		deadline := l.since.Add(opened.TTL)
		s := l.sessions[opened.ID]
		if s == nil {
			l.add(opened.ID, opened.SessionInfo, deadline)
		} else if s.SessionInfo = opened.SessionInfo; deadline.After(s.deadline) {
			s.deadline = deadline
		}
	}
}

// HasAll reports whether Adopt has taken over all sessions.
func (l *Lessor) HasAll() bool { return l.sessionsLeft == 0 }

// Affects reports whether Applied must be called for a command and its events.
// Most commands acquire or release, and affect no deadline.
func Affects(c machine.Command, events []machine.Event) bool {
	switch c.(type) {
	case *machine.OpenSession, *machine.Update, *machine.CloseSession, *machine.Expire, *machine.EndRequests,
		*machine.EndSessions:
		return true
	}
	for i := range events {
		if events[i].Type == machine.EventDelayed {
			return true
		}
	}
	return false
}

// Applied updates the deadlines after the machine has applied a command under this
// leadership. The next call of Due may return a shorter wait.
func (l *Lessor) Applied(now engine.Instant, c machine.Command, result machine.Result, events []machine.Event) {
	switch c := c.(type) {
	case *machine.OpenSession:
		if l.sessions[c.Session] == nil && result.Code == machine.Done {
			l.add(c.Session, machine.SessionInfo{TTL: c.TTL, Incarnation: result.Incarnation}, now.Time().Add(c.TTL))
		}
	case *machine.Update:
		if s := l.sessions[c.Session]; s != nil && s.Incarnation == c.Incarnation && result.Code == machine.Done {
			s.TTL = max(s.TTL, c.TTL)
		}
	case *machine.CloseSession:
		l.remove(c.Session, c.Incarnation)
	case *machine.Expire:
		if result.Code == machine.Done || result.Code == machine.NoSession {
			l.remove(c.Session, c.Incarnation)
		}
	case *machine.EndRequests:
		if l.cancelEndRequests(); result.Code == machine.Ending {
			l.endRequests(now.Time())
		}
	case *machine.EndSessions:
		for id, s := range l.sessions {
			l.remove(id, s.Incarnation)
		}
	}
	for i := range events {
		if events[i].Type == machine.EventDelayed {
			l.addDelay(now, &events[i])
		}
	}
}

// Proven records that an entry which was proposed at sent has committed: this
// node still led at that moment.
func (l *Lessor) Proven(sent engine.Instant) { l.proven = sent }

// Proved reports whether the last proof is younger than ProofLife. If it is not,
// the leader must commit an entry before it renews anything.
func (l *Lessor) Proved(now engine.Instant) bool { return now.Since(l.proven) < ProofLife }

// Renew gives a session this ttl, which may differ from its own; 0 is its own. It reports false if
// the session is not open, is expiring, or is another incarnation: the caller's session has ended.
// It never shortens what an earlier renewal gave, so a late one does no harm. A later leader gives
// the session the TTL that the machine has, which must not be shorter.
//
// The caller must have a proof of leadership: Proved, or an entry that it proposed after the
// request arrived and that has committed.
func (l *Lessor) Renew(now engine.Instant, id engine.SessionID, incarnation uint64, ttl time.Duration) bool {
	s := l.sessions[id]
	if s == nil || s.expiring || s.Incarnation != incarnation {
		return false
	}
	if deadline := now.Time().Add(cmp.Or(ttl, s.TTL)); deadline.After(s.deadline) {
		s.deadline = deadline
	}
	s.renewed = now.Time()
	return true
}

// Left returns the time that a session has left, at most its TTL; 0 if it is not
// open.
func (l *Lessor) Left(now engine.Instant, id engine.SessionID) time.Duration {
	if s := l.sessions[id]; s != nil {
		return max(0, min(s.TTL, s.deadline.Sub(now.Time())))
	}
	return 0
}

// NoteClient notes which client uses a session, for people.
func (l *Lessor) NoteClient(id engine.SessionID, client string) {
	if s := l.sessions[id]; s != nil {
		s.client = client
	}
}

// LastUse returns the time since a session was renewed, and the client of NoteClient. For a session
// that was not renewed under this leadership, the time counts from its first deadline here.
func (l *Lessor) LastUse(now engine.Instant, id engine.SessionID) (ago time.Duration, client string) {
	if s := l.sessions[id]; s != nil {
		return max(0, now.Time().Sub(s.renewed)), s.client
	}
	return 0, ""
}

// Sessions returns the number of open sessions.
func (l *Lessor) Sessions() int { return len(l.sessions) }

// Pending returns the number of deadlines that lie ahead.
func (l *Lessor) Pending() int { return len(l.deadlines) }

// Due returns the commands whose deadline has passed, at most MaxDue of them, and how long
// to wait before the next call, which is 0 if there may be more. Commit them before the next
// call: others' commands then come in between, and a session that waits for its expiry can
// still be renewed. Each command is returned once; report it to Failed if it was not committed.
// From here on the session of an Expire is not renewed.
func (l *Lessor) Due(now engine.Instant) (commands []machine.Command, wait time.Duration) {
	at := now.Time()
	for visits := 0; visits < MaxVisits && len(commands) < MaxDue; visits++ {
		if len(l.deadlines) == 0 || l.deadlines[0].at.After(at) {
			break
		}
		d := l.deadlines[0]
		s := l.sessions[d.session] // remove deletes both together; nil for a command
		if d.command == nil && !s.expiring && s.deadline.After(at) {
			d.at = s.deadline // renewed since
			heap.Fix(&l.deadlines, 0)
			continue
		}
		heap.Pop(&l.deadlines)
		if d.command != nil {
			commands = append(commands, d.command)
			continue
		}
		s.expiring, s.next = true, nil
		commands = append(commands, &machine.Expire{Session: d.session, Incarnation: s.Incarnation, Generation: l.generation})
	}
	return commands, l.Wait(now)
}

// Wait returns how long to wait before the next call of Due.
func (l *Lessor) Wait(now engine.Instant) time.Duration {
	if len(l.deadlines) == 0 {
		return Idle
	}
	return max(0, l.deadlines[0].at.Sub(now.Time()))
}

// Failed makes commands of Due, whose proposal failed, due again after
// RetryPause. Their sessions stay expiring: a proposal with an uncertain outcome
// may still commit, so the session may end before a renewal would.
func (l *Lessor) Failed(now engine.Instant, commands []machine.Command) {
	at := now.Time().Add(RetryPause)
	for _, c := range commands {
		switch c := c.(type) {
		case *machine.EndDelay:
			heap.Push(&l.deadlines, &deadline{at: at, command: c, number: c.Delay})
		case *machine.EndRequests:
			l.cancelEndRequests()
			l.endRequests(at)
		case *machine.Expire:
			if s := l.sessions[c.Session]; s != nil && s.Incarnation == c.Incarnation && s.next == nil {
				l.schedule(c.Session, s, at)
			}
		}
	}
}

// endRequests schedules the next EndRequests.
func (l *Lessor) endRequests(at time.Time) {
	l.end = &deadline{at: at, command: &machine.EndRequests{Max: machine.MaxEndRequests}}
	heap.Push(&l.deadlines, l.end)
}

// cancelEndRequests drops the next EndRequests, if it is not in flight.
func (l *Lessor) cancelEndRequests() {
	if l.end != nil && l.end.index >= 0 {
		heap.Remove(&l.deadlines, l.end.index)
	}
	l.end = nil
}

// add starts the time of a session.
func (l *Lessor) add(id engine.SessionID, info machine.SessionInfo, deadline time.Time) {
	s := &session{SessionInfo: info, deadline: deadline, renewed: deadline.Add(-info.TTL)}
	l.sessions[id] = s
	l.schedule(id, s, s.deadline)
}

// addDelay starts the time of a lock-delay.
func (l *Lessor) addDelay(now engine.Instant, e *machine.Event) {
	heap.Push(&l.deadlines, &deadline{at: now.Time().Add(e.Delay), number: e.DelayID,
		command: &machine.EndDelay{Resource: e.Resources[0], Delay: e.DelayID, Generation: l.generation}})
}

// schedule puts a session into the heap.
func (l *Lessor) schedule(id engine.SessionID, s *session, at time.Time) {
	s.next = &deadline{at: at, session: id}
	heap.Push(&l.deadlines, s.next)
}

// remove drops a session that has ended, unless another incarnation has the id
// now.
func (l *Lessor) remove(id engine.SessionID, incarnation uint64) {
	s := l.sessions[id]
	if s == nil || s.Incarnation != incarnation {
		return
	}
	if s.next != nil {
		heap.Remove(&l.deadlines, s.next.index)
	}
	delete(l.sessions, id)
}
