package model

import (
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

// Code is the result code of a command.
type Code string

// The codes of an Outcome.
const (
	Done      Code = "done"
	Granted   Code = "granted"
	Queued    Code = "queued"
	Held      Code = "held"
	Ended     Code = "ended"
	NoSession Code = "no session"
	WrongMode Code = "wrong mode"
	NotHeld   Code = "not held"
	Outdated  Code = "outdated"
	Busy      Code = "busy"
	Exhausted Code = "exhausted"
	Migrating Code = "migrating"
	NotReady  Code = "not ready"
	// TooManyOpen: too many older sets of lives.
	TooManyOpen Code = "too many open"
	// OtherPermits: the lock has another number of permits.
	OtherPermits Code = "other permits"
	// OtherRequest: the nonce belongs to a live attempt for something else.
	OtherRequest Code = "other request"
	// Ending: sessions that have ended still have requests.
	Ending Code = "ending"
)

// Outcome is the result of a command.
type Outcome struct {
	Code        Code
	Token       fencing.Token
	Slot        int
	Permits     int // of the lock
	Mode, Next  engine.Mode
	Resource    fencing.Resource
	Generation  uint64
	Version     uint64
	Incarnation uint64 // of the opened session
}

// EventKind is the kind of an Event.
type EventKind string

// The kinds of events.
const (
	WasQueued    EventKind = "queued"
	WasGranted   EventKind = "granted"
	WasReleased  EventKind = "released"
	WasCancelled EventKind = "cancelled"
	WasExpired   EventKind = "expired"
	WasBroken    EventKind = "broken"
	WasDelayed   EventKind = "delayed"
	WasOpened    EventKind = "opened"
)

// Event is a change that the service publishes.
type Event struct {
	Kind      EventKind
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

// Attempt identifies a request.
type Attempt struct {
	Session Session
	Nonce   engine.Nonce
}
