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
	// Queued: the request is in the queue. An Event reports its grant.
	Queued
	// Held: the lock is not free, and the request does not wait, or waits no longer.
	Held
	// Ended: the attempt was released or refused earlier.
	Ended
	// NoSession: the session has ended or never existed. A later incarnation with the
	// same id does not count.
	NoSession
	// WrongMode: the lock's mode, in Mode, is not the mode that the request expects, or
	// is not correctness.
	WrongMode
	// NotHeld: there is no such holder.
	NotHeld
	// Outdated: the command names another generation, delay or version.
	Outdated
	// Busy: locks that migrate to efficiency mode are still held.
	Busy
	// Exhausted: there are no tokens left.
	Exhausted
	// Migrating: a lock, or a policy, is migrating from Mode to Next.
	Migrating
	// NotReady: the log has not caught up with the Redis nodes.
	NotReady
	// OtherPermits: permits of the lock are held or waited for with another number of
	// permits in total, in Permits. The attempt has ended.
	OtherPermits
	// LowNonce: the session has forgotten which nonces up to Nonce have ended, and accepts
	// none of them. See MaxEnded.
	LowNonce
	// OtherUser: the session is open and belongs to another user.
	OtherUser
	// Limited: the command would exceed a limit, in Limit, and had no effect.
	Limited
	// TooManyOpen: too many older sets of lives of the Redis nodes may still grant.
	TooManyOpen
	// OtherRequest: the nonce belongs to a live attempt for other locks, or of another
	// kind. The command had no effect.
	OtherRequest
	// Ending: sessions that have ended still have requests.
	Ending
)

var codeNames = [...]string{Done: "done", Granted: "granted", Queued: "queued", Held: "held", Ended: "ended",
	NoSession: "no session", WrongMode: "wrong mode", NotHeld: "not held", Outdated: "outdated", Busy: "busy",
	Exhausted: "exhausted",
	Migrating: "migrating", NotReady: "not ready",
	OtherPermits: "other permits", LowNonce: "low nonce", OtherUser: "other user", Limited: "limited",
	TooManyOpen:  "too many open",
	OtherRequest: "other request", Ending: "ending"}

// String returns the name of c.
func (c Code) String() string {
	if int(c) < len(codeNames) && codeNames[c] != "" {
		return codeNames[c]
	}
	return fmt.Sprintf("code(%d)", uint8(c))
}

// Result is the answer to the proposer of a command. It is the same on every replica.
type Result struct {
	Code       Code
	Token      fencing.Token    // of Granted
	Slot       int              // of Granted
	Mode       engine.Mode      // of Granted, WrongMode and Migrating
	Next       engine.Mode      // of Migrating
	Resource   fencing.Resource // of WrongMode, Migrating, Busy and OtherPermits: the lock
	Permits    int              // of OtherPermits
	Nonce      engine.Nonce     // of LowNonce
	Limit      *LimitError      // of Limited
	Generation uint64           // of Lead
	Version    uint64           // the new version, of commands that change the topology

	Incarnation uint64 // of OpenSession

	Gone []Incarnation // of EndRequests: the sessions that have no request any more
}

// Incarnation identifies a session among all that have or had its id.
type Incarnation struct {
	Session engine.SessionID
	Number  uint64
}

// EventType is the kind of an Event.
type EventType uint8

// The types of an Event.
const (
	// EventQueued: a request was queued.
	EventQueued EventType = iota + 1
	// EventGranted: a request was granted, at once or after waiting.
	EventGranted
	// EventReleased: a holder released its grant.
	EventReleased
	// EventCancelled: a waiter left the queue, its session ended, or one of its locks
	// started a migration.
	EventCancelled
	// EventExpired: a holder's session expired.
	EventExpired
	// EventBroken: an operator broke a grant, or migrated its lock without waiting.
	EventBroken
	// EventDelayed: a lock is not granted for Delay, until EndDelay with DelayID.
	EventDelayed
	// EventOpened: the lock delay of a lock is over.
	EventOpened
)

var eventNames = [...]string{EventQueued: "queued", EventGranted: "granted", EventReleased: "released",
	EventCancelled: "cancelled",
	EventExpired:   "expired", EventBroken: "broken", EventDelayed: "delayed", EventOpened: "opened"}

// String returns the name of t.
func (t EventType) String() string {
	if int(t) < len(eventNames) && eventNames[t] != "" {
		return eventNames[t]
	}
	return fmt.Sprintf("event(%d)", uint8(t))
}

// Event is a change that is reported to waiters, holders and watchers of a lock.
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
	User      string // the owner of Session
	DelayID   uint64
	Delay     time.Duration

	Incarnation uint64 // of Session
}
