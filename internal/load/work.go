package load

import "fmt"

// Kind is a kind of work.
type Kind string

// The kinds of work.
const (
	// Own makes each worker acquire and release its own lock.
	Own Kind = "own"
	// Contended makes all workers acquire and release one lock.
	Contended Kind = "contended"
	// Hold makes the workers acquire many locks, keep all of them, and then release them. It
	// has no warm-up and ignores [Options].Length.
	Hold Kind = "hold"
)

// Work is what the workers do.
type Work struct {
	Kind    Kind
	Workers int
	Clients int // 1 to Workers; the workers share them evenly
	Leases  int // of Hold, in total
}

func (w Work) validate() error {
	switch {
	case w.Workers < 1 || w.Clients < 1 || w.Clients > w.Workers:
		return fmt.Errorf("%d workers with %d clients: at least one client and at most one per worker are needed", w.Workers,
			w.Clients)
	case w.Kind == Hold && w.Leases < w.Workers:
		return fmt.Errorf("%d workers hold %d leases: at least one lease per worker is needed", w.Workers, w.Leases)
	}
	return nil
}
