package machine

import (
	"fmt"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

// Code is the kind of a Result.
type Code uint8

// The codes of a Result.
const (
	// Done: the command took effect, or had taken effect before.
	Done Code = iota + 1
	// Granted: the request holds its resources; Token, Slot and Mode are set.
	Granted
	// Queued: the request waits. An Event says when it is granted.
	Queued
	// Held: the request would have to wait and does not want to.
	Held
	// Ended: the attempt was released, or refused, before.
	Ended
	// NoSession: the session has ended, or never was. That another incarnation
	// has its id by now makes no difference.
	NoSession
	// WrongMode: the lock's mode, in Mode, is not the one that the request
	// expects, or not the correctness mode.
	WrongMode
	// NotHeld: there is no such holder.
	NotHeld
	// Outdated: the command is of another generation, delay or version.
	Outdated
	// Busy: locks that are moving to the efficiency mode are still held.
	Busy
	// Exhausted: there are no tokens left.
	Exhausted
	// Moving: a lock, or a policy, is moving from Mode to Next.
	Moving
	// NotReady: the log has not caught up with the Redis nodes.
	NotReady
)

var codeNames = [...]string{Done: "done", Granted: "granted", Queued: "queued", Held: "held", Ended: "ended",
	NoSession: "no session", WrongMode: "wrong mode", NotHeld: "not held", Outdated: "outdated", Busy: "busy", Exhausted: "exhausted",
	Moving: "moving", NotReady: "not ready"}

// String is the word for c.
func (c Code) String() string {
	if int(c) < len(codeNames) && codeNames[c] != "" {
		return codeNames[c]
	}
	return fmt.Sprintf("code(%d)", uint8(c))
}

// Result is what the proposer of a command is told. It is the same on every
// replica.
type Result struct {
	Code       Code
	Token      fencing.Token    // of Granted
	Slot       int              // of Granted
	Mode       engine.Mode      // of Granted, WrongMode and Moving
	Next       engine.Mode      // of Moving
	Resource   fencing.Resource // of WrongMode, Moving and Busy: the lock
	Generation uint64           // of Lead
	Version    uint64           // the version now, of commands that change the topology
	Range      *Range           // of AssignRange

	Incarnation uint64 // of OpenSession: which session it is
}

// EventType is what happened to a request, or to a lock.
type EventType uint8

// The types of an Event.
const (
	// EventQueued: a request waits.
	EventQueued EventType = iota + 1
	// EventGranted: a request holds its resources, at once or after waiting.
	EventGranted
	// EventReleased: a holder has released.
	EventReleased
	// EventCancelled: a waiter has left, its session has ended, or a lock that it
	// wants is moving.
	EventCancelled
	// EventExpired: a holder's session has expired.
	EventExpired
	// EventBroken: an operator has taken a grant away, or moved its lock at once.
	EventBroken
	// EventDelayed: a lock is closed for Delay, until EndDelay with DelayID.
	EventDelayed
	// EventOpened: the lock-delay of a lock is over.
	EventOpened
)

var eventNames = [...]string{EventQueued: "queued", EventGranted: "granted", EventReleased: "released", EventCancelled: "cancelled",
	EventExpired: "expired", EventBroken: "broken", EventDelayed: "delayed", EventOpened: "opened"}

// String is the word for t.
func (t EventType) String() string {
	if int(t) < len(eventNames) && eventNames[t] != "" {
		return eventNames[t]
	}
	return fmt.Sprintf("event(%d)", uint8(t))
}

// Event is something that others than the proposer want to know: a waiter that
// its turn has come, a holder that it was broken, whoever watches the lock.
// Resources are shared with the machine and must not be changed.
type Event struct {
	Type      EventType
	Resources []fencing.Resource
	Session   engine.SessionID
	Nonce     engine.Nonce
	Token     fencing.Token
	Slot      int
	Mode      engine.Mode
	Holder    string
	DelayID   uint64
	Delay     time.Duration

	Incarnation uint64 // of Session
}
