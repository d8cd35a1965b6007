package load

import "context"

// Target opens a client of the lock service under load: its own connection and, if the service has sessions, its own
// session.
type Target func(ctx context.Context) (Client, error)

// Client takes locks. Workers may share one.
type Client interface {
	// Acquire waits while another worker holds the lock.
	Acquire(ctx context.Context, name string) (Held, error)
	// Close ends the session and the connection.
	Close(ctx context.Context) error
}

// Held is a lock that a worker holds.
type Held struct {
	Token uint64 // the fencing token; 0 if the service has none
	// Release returns when the service has freed the lock.
	Release func(ctx context.Context) error
}
