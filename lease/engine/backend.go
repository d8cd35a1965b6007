package engine

import (
	"context"
	"time"

	"github.com/leased-project/leased/fencing"
)

// Backend provides leases. All methods may be called concurrently.
//
// An error matches one of the sentinels of this package. ErrUnavailable promises that
// this call had no effect, and says nothing about earlier calls. ErrUncertain, and any
// error that matches no sentinel, means that the call may have had an effect. When ctx
// ends, a method returns promptly with an error that matches the context's.
type Backend interface {
	// Open opens a session. When Open returns nil, the session is as durable as a
	// grant. Opening an open session again returns it and renews it.
	Open(ctx context.Context, config SessionConfig) (Session, error)

	// Inspect returns the holders and waiters of a lock at some moment between call
	// and return.
	Inspect(ctx context.Context, resource fencing.Resource) (Status, error)

	// Watch calls changed with the current status, and again after each change. It
	// returns the context's error when ctx ends, or another error when it cannot
	// follow the lock any longer. Changes in quick succession may be reported as one;
	// the last status is always reported.
	Watch(ctx context.Context, resource fencing.Resource, changed func(Status)) error

	// Break ends the lease with this token on behalf of an operator. It returns
	// ErrNotHeld if the lock has no such holder. The holder can still write until the
	// next token has entered the gate.
	Break(ctx context.Context, resource fencing.Resource, token fencing.Token) error
}

// Session is the unit that a client keeps alive at a Backend. Leases that are acquired in a
// session last until they are released, or until the session's TTL has passed without
// a Renew. All methods may be called concurrently.
type Session interface {
	// Acquire requests a grant. A grant is durable when Acquire returns it: it
	// survives every crash that the mode promises to survive. Without Request.Wait,
	// Acquire returns ErrHeld if the lock is not free; with it, Acquire returns when
	// the lock is granted or ctx ends. The Nonce identifies an attempt: repeated, even
	// after an error, the attempt has one outcome. After an error that is not a
	// definite refusal, the caller must either repeat the attempt with the same Nonce
	// or Release it. An error that matches ErrLost means that the session has ended.
	Acquire(ctx context.Context, request Request) (Grant, error)

	// Renew extends the session, and every grant in it, by the session's TTL from
	// now. It returns the attempts whose grants were extended: a grant that is not
	// named ends with its TTL. An error that matches ErrLost means that the session
	// has ended, and with it every grant. After any other error nothing is known to be
	// extended. Renewals are in the service's memory and not durable: a failover may
	// extend a session, but never shortens it.
	//
	// held are the grants that have a Name: an engine without sessions of its own extends
	// these.
	Renew(ctx context.Context, held ...Held) (extended []Nonce, err error)

	// Update renews one grant for held.TTL, which may differ from that of the session, and
	// replaces its metadata by held.Metadata unless that is empty. It never takes back time that
	// an earlier call gave, so a late copy does no harm. An engine with sessions also keeps the
	// other grants of the session for that time, and needs only the Nonce of held.
	Update(ctx context.Context, held Held) error

	// Release ends an attempt: it leaves the queue, or its grant is released. When
	// Release returns nil, the attempt has ended for good, even if a late copy of its
	// Acquire arrives. Releasing twice is a no-op. An engine with sessions needs only the
	// Nonce of held. A lease without a Name may have been left by an Acquire that was not
	// answered.
	Release(ctx context.Context, held Held) error

	// Close ends the session and releases everything in it. held are the grants that an
	// engine without sessions releases.
	Close(ctx context.Context, held ...Held) error
}

// SessionConfig configures a session.
type SessionConfig struct {
	// ID is random and chosen by the caller.
	ID SessionID
	// TTL is the time that the session lasts without a Renew.
	TTL time.Duration
	// Mode is the mode of the locks in the session, for a RoutedBackend. Otherwise it is
	// AnyMode.
	Mode Mode
	// User is the authenticated owner of the session, empty if the service has no
	// users. Only a service sets it.
	User string
	// Clock is the clock for Grant.Sent. Default: SystemClock.
	Clock Clock
	// Lost, if not nil, is called when the Backend learns that a grant has ended
	// without a Release, for example because an operator broke it. The error matches
	// ErrLost. Lost may be called from any goroutine and must not block.
	Lost func(nonce Nonce, err error)
	// Disconnected, if not nil, is called when the connection to the service drops: the
	// Backend cannot hear of losses until the next Renew. It may be called from any
	// goroutine and must not block.
	Disconnected func()
}

// Grant is the answer of a Backend to a Request that it grants.
//
// Invariants:
//  1. Token is valid, and larger than every token granted before for any of
//     the resources;
//  2. Slot is in 1 to Permits for a Permit, else 0; no two holders of one
//     resource have the same Slot at one time.
type Grant struct {
	Token fencing.Token
	Mode  Mode
	Slot  int
	// Sent is the start of the grant's TTL, a moment before the deciding request was
	// sent: the successful attempt, or the last answered keep-alive if the session is
	// renewed as a whole. It is never the time of the answer. If it is zero, the grant lasts as
	// long as its session, or without sessions, its TTL from before the request was sent.
	Sent Instant
	// Name and User are those of Held, for a grant of an engine without sessions. Otherwise
	// they are empty.
	Name, User string
}

// Status has the holders and waiters of a lock.
type Status struct {
	Resource fencing.Resource
	Mode     Mode
	// Holders are in the order of their tokens, Waiters in queue order, as far as the
	// backend knows them.
	Holders []Party
	Waiters []Party
	// Delayed: the last holder was lost, and the lock delay has not passed.
	Delayed bool
	// Permits is the number of permits while permits are held or waited for, else 0. Backends
	// other than Raft leave it 0.
	Permits int
}

// Party is a holder or a waiter of a lock. A service with users leaves out the Session,
// Nonce, Token and Client of a party unless the caller is its owner or may break the lock.
type Party struct {
	// Holder is the name that the client gave. User is the name that the service
	// authenticated, empty if it has no users.
	Holder   string
	User     string
	Session  SessionID
	Nonce    Nonce
	Kind     Kind
	Slot     int
	Token    fencing.Token // None for a waiter
	Metadata map[string]string
	// TTL is the time until the lease ends without a renewal; 0 if the backend does
	// not know it.
	TTL time.Duration
	// Since is when the lease was granted, or the waiter was queued, by the clock of
	// the backend. It is for people to read: zero if the backend does not know it.
	Since time.Time
	// Renewed is the time since the last renewal, or since the grant if there was none; 0 if
	// the backend does not know it. Client is the address and the program that used the session
	// last, as far as the service knows it.
	Renewed time.Duration
	Client  string
}
