package load

import "fmt"

// Work is what the workers do.
type Work interface {
	// size returns the numbers of workers and clients. The clients are shared out evenly.
	size() (workers, clients int)
	// validate checks the numbers.
	validate() error
}

// Own makes each worker acquire and release its own lock.
type Own struct {
	Workers int
	Clients int // 1 to Workers
}

// Contended makes all workers acquire and release one lock.
type Contended struct {
	Workers int
	Clients int // 1 to Workers
}

// Hold makes the workers acquire many locks, keep all of them, and then release them. It
// has no warm-up and ignores [Options].Length.
type Hold struct {
	Leases  int // in total
	Workers int
	Clients int // 1 to Workers
}

var _, _, _ Work = Own{}, Contended{}, Hold{}

func (w Own) size() (workers, clients int)       { return w.Workers, w.Clients }
func (w Contended) size() (workers, clients int) { return w.Workers, w.Clients }
func (w Hold) size() (workers, clients int)      { return w.Workers, w.Clients }

func (w Own) validate() error       { return validSize(w.Workers, w.Clients) }
func (w Contended) validate() error { return validSize(w.Workers, w.Clients) }

func (w Hold) validate() error {
	if w.Leases < w.Workers {
		return fmt.Errorf("%d workers hold %d leases: at least one lease per worker is needed", w.Workers, w.Leases)
	}
	return validSize(w.Workers, w.Clients)
}

func validSize(workers, clients int) error {
	if workers < 1 || clients < 1 || clients > workers {
		return fmt.Errorf("%d workers with %d clients: at least one client and at most one per worker are needed", workers, clients)
	}
	return nil
}
