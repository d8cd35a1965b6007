package lease

import (
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

// Hooks observe a Client, for metrics and logs; the package itself logs nothing.
// Every field may be nil. A hook runs on the goroutine that does the work, with no
// mutex held: it should be quick, and may call the Client except for Close, which
// waits for hooks. Each lease is reported once as Acquired, and once as Lost or
// Released.
type Hooks struct {
	// Waiting is called when an attempt has to queue, and when an attempt failed
	// and is retried; Err is then the failure.
	Waiting func(Event)
	// Acquired is called when a lease was granted or re-entered. Elapsed is the
	// time since the call.
	Acquired func(Event)
	// Lost is called when a lease ended other than by Release. Err says why.
	Lost func(Event)
	// Released is called when the holder released a lease. Err is nil if the
	// service confirmed it; otherwise the release is retried in the background.
	Released func(Event)
	// Renewed is called when a keep-alive was answered or failed.
	Renewed func(Renewal)
}

// Event describes what happened to one lease or attempt.
type Event struct {
	Resources []fencing.Resource
	Holder    string
	Token     fencing.Token // None while waiting
	Mode      Mode
	Elapsed   time.Duration // since Acquire was called, or since the grant
	Err       error
}

// Renewal describes one keep-alive, which serves all leases of a session.
type Renewal struct {
	Session engine.SessionID
	Leases  int
	Elapsed time.Duration // from before it was sent until the answer
	Err     error         // nil if every lease was extended
}

func emit[T any](hook func(T), event T) {
	if hook != nil {
		hook(event)
	}
}
