package lease

import (
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

// Hooks observe a Client, for metrics and logs; the library itself logs
// nothing. Every field may be nil. Hooks are called on the goroutine that does
// the work, with no lock held: they should be quick, and may call the Client,
// but for Close, which waits for them. Each lease is told of once as Acquired,
// and once as Lost or Released.
type Hooks struct {
	// Waiting: an attempt has to queue, or failed in a way that may pass and is
	// tried again; then Err says how.
	Waiting func(Event)
	// Acquired: a lease was granted, or re-entered. Elapsed is the time since
	// the call.
	Acquired func(Event)
	// Lost: a lease ended other than by Release. Err says how.
	Lost func(Event)
	// Released: the holder has released a lease. Err is nil if the service
	// confirmed it; else the release is tried again in the background.
	Released func(Event)
	// Renewed: a keep-alive was answered, or failed.
	Renewed func(Renewal)
}

// Event is what happened to one lease or attempt.
type Event struct {
	Resources []fencing.Resource
	Holder    string
	Token     fencing.Token // None while waiting
	Mode      engine.Mode
	Elapsed   time.Duration // since Acquire was called, or since the grant
	Err       error
}

// Renewal is one keep-alive, which serves all the leases of a session.
type Renewal struct {
	Session engine.SessionID
	Leases  int
	Elapsed time.Duration // from before it was sent to the answer
	Err     error         // nil if every lease was prolonged
}

func emit[T any](hook func(T), event T) {
	if hook != nil {
		hook(event)
	}
}
