package model

import (
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

// Code is the word for how a command ended.
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
	Moving    Code = "moving"
	NotReady  Code = "not ready"
)

// Outcome is what the one who gave a command is told.
type Outcome struct {
	Code       Code
	Token      fencing.Token
	Slot       int
	Mode, Next engine.Mode
	Resource   fencing.Resource
	Generation uint64
	Version    uint64
	Life       uint64 // of a session that was opened
	Range      *Range // that was assigned
}

// Happening is the word for what an Event tells.
type Happening string

// The happenings of an Event.
const (
	WasQueued    Happening = "queued"
	WasGranted   Happening = "granted"
	WasReleased  Happening = "released"
	WasCancelled Happening = "cancelled"
	WasExpired   Happening = "expired"
	WasBroken    Happening = "broken"
	WasDelayed   Happening = "delayed"
	WasOpened    Happening = "opened"
)

// Event is what everyone is told.
type Event struct {
	What      Happening
	Resources []fencing.Resource
	Session   engine.SessionID
	Nonce     engine.Nonce
	Token     fencing.Token
	Slot      int
	Mode      engine.Mode
	Holder    string
	DelayID   uint64
	Delay     time.Duration
}

// Attempt is the identity of a request.
type Attempt struct {
	Session engine.SessionID
	Nonce   engine.Nonce
}
