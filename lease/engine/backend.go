package engine

import (
	"context"
	"time"

	"github.com/leased-project/leased/fencing"
)

// Backend provides leases. All methods may be called concurrently.
//
// An error matches one of the sentinels of this package. Two of them carry the
// contract: ErrUnavailable promises that this call has done nothing, and says
// nothing of earlier ones; ErrUncertain, or any error that is no sentinel, says
// that it may have. When ctx ends a method returns promptly, with an error that
// matches the context's.
type Backend interface {
	// Open starts a session. When it returns nil the session is known to the
	// service as durably as a grant. Opening the same ID again finds it again
	// and renews it.
	Open(ctx context.Context, config SessionConfig) (Session, error)

	// Inspect tells who holds the lock and who waits for it, as of some moment
	// between call and return.
	Inspect(ctx context.Context, resource fencing.Resource) (Status, error)

	// Watch calls changed with the present status, and again after each change,
	// until ctx ends; it returns the context's error then, or another one when
	// it can tell no more. Changes in quick succession may be told as one: the
	// last is always told.
	Watch(ctx context.Context, resource fencing.Resource, changed func(Status)) error

	// Break takes the lease with this token away from its holder, by order of
	// an operator. It returns ErrNotHeld if the lock has no such holder. The
	// holder's writes stop when the next token has entered the gate, not before.
	Break(ctx context.Context, resource fencing.Resource, token fencing.Token) error
}

// Session is a client's standing with a Backend: the unit that is kept alive.
// Everything acquired in a session lives until it is released or the session's
// TTL has passed without a Renew. All methods may be called concurrently.
type Session interface {
	// Acquire asks for a grant. A grant is durable when Acquire returns it: no
	// crash that the mode promises to survive takes it back. Without
	// Request.Wait a lock that is not free is answered with ErrHeld; with it
	// Acquire returns when the grant comes or ctx ends. An attempt is known by
	// its Nonce: asked again, also after an error, it has one outcome. After
	// any error that is not a certain refusal the caller must either ask again
	// with the same Nonce or Release it. An error matching ErrLost says that
	// the session is gone.
	Acquire(ctx context.Context, request Request) (Grant, error)

	// Renew prolongs the session, and every grant in it, by the session's TTL
	// from now. It returns the attempts that could not be renewed though the
	// others were. An error matching ErrLost says that the session is gone, and
	// with it every grant; any other error says that nothing is known to have
	// been prolonged. It is in memory of the service, not durable: a failover
	// may prolong a session, never shorten it.
	Renew(ctx context.Context) (failed []Nonce, err error)

	// Release ends the attempt, whatever its state: it leaves the queue, or
	// frees what it was granted. After nil the attempt has ended for good, also
	// for a late copy of its Acquire. Released twice, it is a no-op.
	Release(ctx context.Context, nonce Nonce) error

	// Close ends the session and releases everything in it.
	Close(ctx context.Context) error
}

// SessionConfig is what a session is opened with.
type SessionConfig struct {
	// ID is random, made by the caller.
	ID SessionID
	// TTL is how long the session lasts without a Renew.
	TTL time.Duration
	// Clock is where the Backend reads Grant.Sent. Default: SystemClock.
	Clock Clock
	// Lost, if not nil, is called when the Backend learns by itself that a
	// granted attempt has ended other than by Release: broken by an operator,
	// or taken. The error matches ErrLost. It may be called from any goroutine
	// and must not block.
	Lost func(nonce Nonce, err error)
}

// Grant is what a Backend answers to a Request that it grants.
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
	// Sent is a moment before the request that the grant's time counts from
	// was sent: the winning attempt, or the last answered keep-alive where a
	// session is prolonged as a whole. Never the moment of the answer.
	Sent Instant
}

// Status is what Inspect tells of a lock.
type Status struct {
	Resource fencing.Resource
	Mode     Mode
	// Holders are in the order of their tokens, Waiters in the order in which
	// they will be served, as far as the backend knows them.
	Holders []Party
	Waiters []Party
	// Delayed: the last holder was lost, and the lock-delay has not passed.
	Delayed bool
}

// Party is one holder of a lock, or one who waits for it.
type Party struct {
	Holder   string
	Session  SessionID
	Nonce    Nonce
	Kind     Kind
	Slot     int
	Token    fencing.Token // None for a waiter
	Metadata map[string]string
	// TTL is the time left until the lease ends if it is not renewed; 0 where
	// the backend does not know.
	TTL time.Duration
}
